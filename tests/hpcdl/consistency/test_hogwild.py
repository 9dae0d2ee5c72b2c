"""HOGWILD!: what meets whom, lost updates and none, and the compiled form beside the plain one."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from hpcdl.comm import shared_tensor, simulate
from hpcdl.consistency.fast_hogwild import LOOPS, logistic_epochs
from hpcdl.consistency.hogwild import completion, hogwild, logistic, logistic_loss, round_robin, sparsity
from hpcdl.data import rcv1_like

ROWS = rcv1_like(300, features=400, nonzeros=8)
LR = 0.5


def dense(rows):
    x = torch.zeros(len(rows), rows.features)
    row = torch.repeat_interleave(torch.arange(len(rows)), rows.starts.diff())
    x[row, rows.columns.long()] = rows.values
    return x


def serial(rows, lr, orders, dtype=torch.float64):
    """Dense SGD, one row after another, by autograd."""
    x = dense(rows)
    x, y, w = x.to(dtype), rows.y.to(dtype), torch.zeros(rows.features, dtype=dtype, requires_grad=True)
    for i in orders:
        (grad,) = torch.autograd.grad(torch.nn.functional.softplus(-y[i] * (x[i] @ w)), w)
        w.data -= lr * grad
    return w.detach()


# -- who meets whom ---------------------------------------------------------------------------------------------------


def test_sparsity_is_what_the_pairs_of_edges_say():
    random = np.random.default_rng(1)
    for _ in range(20):
        n, m = random.integers(1, 12, size=2)
        edges = [random.choice(n, size=random.integers(1, n + 1), replace=False).tolist() for _ in range(m)]
        meet = [[bool(set(a) & set(b)) for b in edges] for a in edges]
        found = sparsity(edges)
        assert found.omega == max(map(len, edges))
        assert found.rho == max(map(sum, meet)) / m
        assert found.delta == max(sum(v in edge for edge in edges) for v in range(n)) / m


def test_a_sum_without_terms_is_refused():
    with pytest.raises(ValueError, match="edges is empty"):
        sparsity([])


# -- plain ------------------------------------------------------------------------------------------------------------


def run(edges, gradient, p, features, orders, seed=0, how=None, **costs):
    def rank(comm):
        w = shared_tensor(comm, features, torch.float64)
        if how is None:
            hogwild(w, edges, gradient, LR, orders[comm.rank])
        else:
            how(comm, w, edges, gradient, LR, orders[comm.rank])
        comm.barrier()
        return w.tensor.clone(), getattr(w, "events", None)

    return simulate(rank, p, seed=seed, **costs)


def test_one_processor_is_serial_sgd():
    order = torch.randperm(len(ROWS), generator=torch.Generator().manual_seed(0)).tolist()
    edges, gradient = logistic(ROWS)
    w = run(edges, gradient, 1, ROWS.features, [order], gamma=1e-9).results[0][0]
    torch.testing.assert_close(w, serial(ROWS, LR, order), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_edges_that_do_not_meet_give_serial_bits_in_every_order(seed):
    edges = [[0, 3], [1], [2, 4, 5], [6]]
    gradient = lambda w_e, e: torch.sin(w_e + e)  # noqa: E731
    orders = [[0, 2] * 5, [1, 3] * 5]
    w, events = run(edges, gradient, 2, 7, orders, seed, gamma=1.0).results[0]
    right = torch.zeros(7, dtype=torch.float64)
    for e in orders[0] + orders[1]:
        right[edges[e]] -= LR * gradient(right[edges[e]], e)
    torch.testing.assert_close(w, right, rtol=0, atol=0)
    assert {event.element for event in events if event.rank == 0 and event.op == "write"} == {0, 3, 2, 4, 5}


def test_an_update_is_lost_where_two_meet_and_only_there():
    edges, gradient = [[0]], lambda w_e, e: -torch.ones(1, dtype=torch.float64) / LR  # each adds 1
    together = run(edges, gradient, 2, 1, [[0] * 9, [0] * 9], gamma=1.0).results[0][0]
    in_turns = run(edges, gradient, 2, 1, [[0] * 9, [0] * 9], gamma=1.0, how=round_robin).results[0][0]
    assert (together.item(), in_turns.item()) == (9.0, 18.0)


def test_round_robin_takes_turns_and_hogwild_does_not():
    edges, gradient = logistic(ROWS)
    orders = [list(range(r, 40, 2)) for r in (0, 1)]
    free = run(edges, gradient, 2, ROWS.features, orders, gamma=1.0, alpha=20.0)
    turns = run(edges, gradient, 2, ROWS.features, orders, gamma=1.0, alpha=20.0, how=round_robin)
    writers = [event.rank for event in turns.results[0][1] if event.op == "write"]
    assert sum(a != b for a, b in pairwise(writers)) == 39  # 40 updates in turns
    elements = [8 * 3 * sum(len(edges[i]) for i in order) for order in orders]  # read, read again and written
    assert free.seconds == pytest.approx(max(elements) + 2 * 20.0)  # the shared tensor and a barrier
    assert turns.seconds > free.seconds + 39 * 20


def test_matrix_completion_is_descent_of_its_loss_and_finds_the_matrix():
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (8, 6))
    known = [(u, v) for u in range(8) for v in range(6) if (u + v) % 4]
    z = left @ right.T
    rows, columns = map(list, zip(*known, strict=True))
    values = [z[u, v].item() for u, v in known]
    edges, gradient = completion(rows, columns, values, (8, 6), 2, mu=0.3)
    w = torch.randn(28, generator=generator, dtype=torch.float64, requires_grad=True)

    def whole(w, mu):
        a, b = w[:16].view(8, 2), w[16:].view(6, 2)
        return ((a @ b.T - z)[rows, columns] ** 2).sum() + mu / 2 * (w**2).sum()

    total = torch.zeros(28, dtype=torch.float64)
    for e, edge in enumerate(edges):
        total[edge] += gradient(w.detach()[edge], e)
    torch.testing.assert_close(total, torch.autograd.grad(whole(w, 0.3), w)[0])

    edges, gradient = completion(rows, columns, values, (8, 6), 2)

    def rank(comm):
        shared = shared_tensor(comm, 28, torch.float64)
        if comm.rank == 0:
            shared.write(None, w)
        comm.barrier()
        order = list(range(comm.rank, len(edges), comm.size)) * 80
        hogwild(shared, edges, gradient, 0.03, order)
        comm.barrier()
        return shared.tensor

    assert whole(simulate(rank, 2, gamma=1e-9).results[0], 0.0) < 0.1 * whole(w, 0.0)


# -- compiled ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", LOOPS)
def test_one_thread_is_serial_sgd(how):
    w = torch.zeros(ROWS.features)
    logistic_epochs(ROWS, w, LR, 2, 1, how, seed=4)
    random = np.random.default_rng(4)
    order = np.concatenate([random.permutation(len(ROWS)) for _ in range(2)]).tolist()
    torch.testing.assert_close(w, serial(ROWS, LR, order).float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", LOOPS)
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.timeout(60)
def test_threads_come_to_the_loss_of_one(how, threads):
    alone, together = torch.zeros(ROWS.features), torch.zeros(ROWS.features)
    logistic_epochs(ROWS, alone, 0.1, 20, 1)
    logistic_epochs(ROWS, together, 0.1, 20, threads, how)
    assert logistic_loss(ROWS, together) == pytest.approx(logistic_loss(ROWS, alone), rel=0.01)
    assert logistic_loss(ROWS, alone) < 0.9 * logistic_loss(ROWS, torch.zeros(ROWS.features))


def test_round_robin_is_the_same_run_whatever_the_threads_do():
    """Gradients may be stale; every row is there once, so that a linear loss would give the same sums."""
    found = []
    for _ in range(2):
        w = torch.zeros(ROWS.features)
        logistic_epochs(ROWS, w, 1e-6, 1, 3, "round robin")  # so small that w stays near 0: staleness does not matter
        found.append(w)
    np.testing.assert_allclose(found[0] * 1e6, found[1] * 1e6, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found[0] * 1e6, ROWS.y @ dense(ROWS) / 2, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"how": "lucky"}, "how is 'lucky'"), ({"threads": 0}, "threads is 0"), ({"w": torch.zeros(3)}, r"w is \(3,\)")],
)
def test_wrong_arguments_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        logistic_epochs(**{"rows": ROWS, "w": torch.zeros(ROWS.features), "lr": LR} | options)


@pytest.mark.parametrize(("row", "column"), [(2, 0), (-1, 0), (0, 3), (0, -1)])
def test_completion_outside_the_matrix(row, column):
    with pytest.raises(ValueError, match=rf"row {row}, column {column} is outside of shape \(2, 3\)"):
        completion([0, row], [0, column], [1.0, 1.0], (2, 3), 1)
