"""L-BFGS by a coordinator: its iterations are torch's, its messages small, and a straggler's portion is done twice."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.comm import RankError, simulate
from hpcdl.consistency.balancing import finish
from hpcdl.consistency.lbfgs import GRADIENT, WEIGHTS, LocalVectors, minimise
from hpcdl.consistency.sandblaster import COMMAND, SCALAR, sandblaster

N, ROWS, PORTIONS = 12, 60, 5
DATA = torch.Generator().manual_seed(3)
X = torch.randn(ROWS, N, generator=DATA, dtype=torch.float64)
Y = (X @ torch.randn(N, generator=DATA, dtype=torch.float64) > 0.1).double() * 2 - 1


def loss_of(w, rows=slice(None), share=1.0):
    """Convex: logistic regression and a square."""
    losses = torch.nn.functional.softplus(-Y[rows] * (X[rows] @ w))
    return losses.sum() / ROWS + share * 0.05 * (w @ w)


def portion(w, i):
    w = w.clone().requires_grad_()
    loss = loss_of(w, slice(i * ROWS // PORTIONS, (i + 1) * ROWS // PORTIONS), 1 / PORTIONS)
    loss.backward()
    return loss.item(), w.grad


def torchs(history, lr=1.0, tolerance=1e-8):
    """The losses of torch.optim.LBFGS, one iteration after another, to the same end."""
    w = torch.zeros(N, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], lr, 1, 1, tolerance, 0.0, history)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = loss_of(w)
        loss.backward()
        return loss

    while True:
        losses.append(optimizer.step(closure).item())
        optimizer.zero_grad()
        loss_of(w).backward()
        if w.grad.abs().max() <= tolerance:
            return [*losses, loss_of(w).item()], w.detach()


def run(p=6, shards=2, work=0.0, **options):
    def rank(comm):
        def gradient(w, i):
            comm.compute(work)
            return portion(w, i)

        return sandblaster(comm, torch.zeros(N, dtype=torch.float64), gradient, PORTIONS, shards, **options)

    costs = {name: options.pop(name) for name in ("alpha", "slow", "seed") if name in options}
    return simulate(rank, p, **costs)


def whole(found, shards=2):
    return torch.cat([result.w for result in found.results[1 : shards + 1]])


# -- value ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [1, 3, 10])
@pytest.mark.parametrize(("p", "shards", "options"), [(3, 1, {}), (6, 2, {"slow": {4: 5.0}}), (17, 13, {"seed": 2})])
def test_iterations_are_those_of_torch(p, shards, options, history):
    found = run(p, shards, 1.0, history=history, alpha=0.01, **options)
    losses, w = torchs(history)
    assert len(found.results[0].losses) == len(losses)
    torch.testing.assert_close(torch.tensor(found.results[0].losses), torch.tensor(losses), rtol=1e-9, atol=0)
    torch.testing.assert_close(whole(found, shards), w, rtol=1e-7, atol=1e-8)


def test_here_it_is_the_same():
    vectors = LocalVectors(N)

    def evaluate():
        w = vectors[WEIGHTS].clone().requires_grad_()
        loss = loss_of(w)
        (gradient,) = torch.autograd.grad(loss, w)
        vectors[GRADIENT].copy_(gradient)
        return loss.item()

    assert len(minimise(vectors, evaluate)) == len(torchs(10)[0])


def test_a_loss_that_is_not_finite_is_said():
    with pytest.raises(RankError, match="the loss is nan after 0 steps"):
        simulate(lambda comm: sandblaster(comm, torch.zeros(3), lambda w, i: (float("nan"), w), 1), 3)


# -- traffic ----------------------------------------------------------------------------------------------------------


def scalars(found):
    """Bytes of commands and scalars, by rank pair's kind, and the largest."""
    sizes = [event.nbytes for event in found.trace if event.op == "send" and 0 in (event.rank, event.peer)]
    return set(sizes)


def test_dot_product_costs_the_same_for_any_n():
    found = run(tolerance=1e-3)  # before steps get so small that their pairs are left out
    assert scalars(found) == {32, 16, 8}  # a command; an order, a report; a scalar
    asked = [e for e in found.trace if e.op == "send" and e.rank > 0 and e.peer == 0 and e.tag == SCALAR]
    steps, shards = len(found.results[0].losses) - 1, 2
    pairs = [min(k, 10) for k in range(steps)]
    dots = sum(3 * m + (m > 0) for m in pairs) + steps + 1 + steps + 1  # two loops; the end; a new pair; the first step
    assert len(asked) == shards * dots
    commands = [e for e in found.trace if e.op == "send" and e.rank == 0 and e.tag == COMMAND]
    assert len(commands) > len(asked)


def test_vectors_move_once_for_each_portion_and_each_fetch():
    found = run(p=6, backups=False)
    vectors = [e for e in found.trace if e.op == "send" and e.rank > 0 and e.peer > 0]
    evaluations = len(found.results[0].losses)
    pushes = sum(e.nbytes for e in vectors if e.rank > 2)
    fetches = sum(e.nbytes for e in vectors if e.rank <= 2)
    assert pushes == evaluations * PORTIONS * N * 8
    assert fetches == evaluations * min(3, PORTIONS) * N * 8  # three replicas, each once


# -- time -------------------------------------------------------------------------------------------------------------


def test_backup_spares_the_wait_for_a_straggler():
    slow = {3: 40.0}
    with_, without = (run(work=1.0, most=3, slow=slow, backups=backups) for backups in (True, False))
    torch.testing.assert_close(whole(with_), whole(without), rtol=1e-12, atol=1e-12)
    assert with_.results[0].losses == pytest.approx(without.results[0].losses, rel=1e-12)
    assert without.seconds == 4 * 40.0  # each evaluation
    assert with_.seconds == 40.0  # the straggler's first portion, for which ranks wait only at the end


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=7), st.lists(st.sampled_from([1, 2, 3, 6]), min_size=1, max_size=3)
)
@settings(max_examples=60)
def test_balancing_is_a_list_schedule_and_backups_make_it_no_later(tasks, speeds):
    free, lonely = [0.0] * len(speeds), finish(tasks, speeds, backups=False)
    for work in tasks:  # the node that is free first; of several, the lowest
        node = min(range(len(free)), key=lambda i: (free[i], i))
        free[node] += work / speeds[node]
    assert lonely.seconds == pytest.approx(max(free))
    helped = finish(tasks, speeds)
    assert helped.seconds <= lonely.seconds
    assert None not in helped.done_by
    best = min(
        max(sum(t for t, n in zip(tasks, owners, strict=True) if n == node) / s for node, s in enumerate(speeds))
        for owners in itertools.product(range(len(speeds)), repeat=len(tasks))
    )
    assert sum(tasks) / sum(speeds) <= best * (1 + 1e-12) <= lonely.seconds * (1 + 1e-9)


def test_a_backup_of_the_last_portion():
    assert finish([4, 4, 4], [1, 4, 4], backups=False).seconds == 4
    assert finish([4, 4, 4], [1, 4, 4]) == (2, [2, 1, 1]) or finish([4, 4, 4], [1, 4, 4]).seconds == 2


@pytest.mark.parametrize(("tasks", "speeds"), [([1], []), ([-1], [1]), ([1], [0])])
def test_work_that_is_none_is_refused(tasks, speeds):
    with pytest.raises(ValueError, match="some node has a speed above 0"):
        finish(tasks, speeds)


def test_too_few_ranks_are_refused():
    with pytest.raises(RankError, match="shards is 2 and portions 5 on 3 ranks"):
        run(3, 2)
