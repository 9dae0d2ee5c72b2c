"""LARS, LAMB, linear scaling and warm-up against the papers' formulas in NumPy, and against Adam and SGD of torch."""

import functools

import numpy as np
import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.sharding import ShardedOptimizer
from hpcdl.training.large_batch import LAMB, LARS, linear_scaling, warm_up

SHAPES = [(5, 7), (4, 3, 3, 3), (6,), ()]


def parameters(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in SHAPES]


def run(optimizer, params, steps=5, seed=1, factor=1.0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for param in params:
            param.grad = factor * torch.randn(param.shape, generator=generator, dtype=param.dtype)
        optimizer.step()
    return [param.detach().clone() for param in params]


def gradients(steps=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(s, generator=generator, dtype=torch.float64).numpy() for s in SHAPES] for _ in range(steps)]


def lars_by_hand(lr=0.3, momentum=0.9, weight_decay=0.01, eta=0.02):
    w = [param.detach().numpy().copy() for param in parameters()]
    v = [np.zeros_like(x) for x in w]
    for grads in gradients():
        for i, g in enumerate(grads):
            matrix = w[i].ndim > 1
            decay = weight_decay if matrix else 0.0
            size = np.sqrt((w[i] ** 2).sum())
            trust = eta * size / (np.sqrt((g**2).sum()) + decay * size) if matrix else 1.0
            v[i] = momentum * v[i] + lr * trust * (g + decay * w[i])
            w[i] = w[i] - v[i]
    return w


def lamb_by_hand(lr=0.02, b1=0.8, b2=0.99, eps=1e-6, weight_decay=0.05):
    w = [param.detach().numpy().copy() for param in parameters()]
    m, v = [np.zeros_like(x) for x in w], [np.zeros_like(x) for x in w]
    for t, grads in enumerate(gradients(), 1):
        for i, g in enumerate(grads):
            matrix = w[i].ndim > 1
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            u = m[i] / (1 - b1**t) / (np.sqrt(v[i] / (1 - b2**t)) + eps) + (weight_decay * w[i] if matrix else 0.0)
            w[i] = w[i] - lr * (np.linalg.norm(w[i]) / np.linalg.norm(u) if matrix else 1.0) * u
    return w


def test_lars_is_the_papers():
    params = parameters()
    result = run(LARS(params, 0.3, weight_decay=0.01, eta=0.02), params)
    for x, expected in zip(result, lars_by_hand(), strict=True):
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12, atol=1e-14)


def test_lamb_is_the_papers():
    params = parameters()
    result = run(LAMB(params, 0.02, betas=(0.8, 0.99), weight_decay=0.05), params)
    for x, expected in zip(result, lamb_by_hand(), strict=True):
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12, atol=1e-14)


def test_for_tensors_of_one_axis_they_are_sgd_and_adam():
    for ours, theirs in (
        (lambda p: LARS(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (lambda p: LAMB(p, 0.1, eps=1e-8), lambda p: torch.optim.Adam(p, 0.1)),
    ):
        mine, peers = parameters()[2:], parameters()[2:]
        for x, expected in zip(run(ours(mine), mine), run(theirs(peers), peers), strict=True):
            torch.testing.assert_close(x, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [lambda p: LARS(p, 0.1, weight_decay=0.0), lambda p: LAMB(p, 0.1, eps=0.0)])
def test_a_matrix_moves_as_far_however_long_its_gradient_is(make):
    mine, others = parameters()[:2], parameters()[:2]
    for x, other in zip(run(make(mine), mine), run(make(others), others, factor=1024.0), strict=True):
        torch.testing.assert_close(x, other, rtol=1e-12, atol=1e-14)


def test_lamb_changes_a_matrix_by_the_share_lr_of_itself():
    (w,) = parameters()[:1]
    before = w.detach().clone()
    (after,) = run(LAMB([w], 0.03), [w], steps=1)
    assert (after - before).norm() == pytest.approx(0.03 * before.norm().item(), rel=1e-12)


@pytest.mark.parametrize("ranks", [0, 2])
@pytest.mark.parametrize("make", [LARS, LAMB])
def test_norms_of_many_small_float16_numbers_do_not_overflow(make, ranks):
    """The norm of 300 x 300 weights of 250 is 75,000; float16 ends at 65,504."""

    def train(comm=None):
        w = torch.full((300, 300), 250.0, dtype=torch.float16, requires_grad=True)
        inner = functools.partial(make, lr=0.01, weight_decay=0.0)
        optimizer = ShardedOptimizer([w], comm, inner) if comm else inner([w])
        w.sum().backward()
        optimizer.step()
        return w.detach()

    moved = {LARS: 0.01 * 1e-3 * 250.0, LAMB: 0.01 * 250.0}[make]
    for w in simulate(train, ranks).results if ranks else [train()]:
        assert ((250.0 - w).double() - moved).abs().max() <= 0.125, "half of the gap between float16 numbers"


@pytest.mark.parametrize("make", [LARS, LAMB])
def test_norms_of_zero_and_absent_gradients_do_no_harm(make):
    zero = torch.zeros(3, 3, requires_grad=True)
    still, absent = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    zero.grad, still.grad = torch.ones(3, 3), torch.zeros(3, 3)
    optimizer = make([zero, still, absent], 0.1)
    optimizer.step()
    assert zero.isfinite().all()
    assert (zero != 0).all(), "weights that start at zero get away from it"
    assert still.isfinite().all()
    assert (absent == 1).all()
    optimizer.zero_grad()
    assert zero.grad is None


def test_lr_may_change_between_steps():
    (w,) = parameters()[:1]
    before, optimizer = w.detach().clone(), LARS([w], 0.1)
    optimizer.lr = 0.0
    assert torch.equal(run(optimizer, [w])[0], before)


def test_linear_scaling_and_warm_up_are_goyals():
    assert linear_scaling(0.1, 8192) == pytest.approx(3.2)
    lrs = [warm_up(step, 3.2, 5, start=0.1) for step in range(8)]
    assert lrs[0] == 0.1
    assert lrs[5:] == [3.2] * 3
    assert np.diff(lrs[:6]) == pytest.approx([0.62] * 5)
    assert warm_up(0, 0.1, 0) == 0.1
    with pytest.raises(ValueError, match="batch is 0 and base is 256"):
        linear_scaling(0.1, 0)
    with pytest.raises(ValueError, match="step is -1 and steps is 5"):
        warm_up(-1, 0.1, 5)


MAKES = [lambda p, **options: LARS(p, 0.3, **options), lambda p, **options: LAMB(p, 0.02, **options)]


@pytest.mark.parametrize("ranks", [0, 1, 3])
@pytest.mark.parametrize("make", MAKES)
def test_complex_weights_are_pairs_of_real_ones(make, ranks):
    """Of tensors of two axes or more, whose pairs have as many norms; on some ranks, or without any (0)."""
    draw = torch.Generator().manual_seed(0)
    start, x = (torch.randn(size, dtype=torch.complex128, generator=draw) for size in ((3, 2), (6, 3)))

    def trained(comm, pairs):
        w = torch.nn.Parameter(torch.view_as_real(start).clone() if pairs else start.clone())
        optimizer = make([w]) if pairs or not ranks else ShardedOptimizer([w], comm, make)
        for _ in range(4):
            optimizer.zero_grad()
            mine = x if pairs or not ranks else x.tensor_split(comm.size)[comm.rank]
            (mine @ (torch.view_as_complex(w) if pairs else w)).abs().square().mean().backward()
            optimizer.step()
        return w.detach() if pairs else torch.view_as_real(w.detach())

    right = trained(None, pairs=True)
    for found in [trained(None, False)] if not ranks else simulate(trained, ranks, False).results:
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", MAKES)
def test_a_state_goes_on_to_the_same_bits(make):
    params = parameters()
    expected = run(make(params), params, steps=6)
    first, later = parameters(), parameters()
    optimizer = make(first)
    run(optimizer, first, steps=3)
    state = optimizer.state_dict()
    again = make(later)
    again.load_state_dict(state)
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        for mine, start in zip(later, first, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator, dtype=mine.dtype)
            if step == 3:
                mine.data.copy_(start)
        if step >= 3:
            again.step()
    assert all(torch.equal(x, y) for x, y in zip(later, expected, strict=True))


@pytest.mark.parametrize("make", MAKES)
def test_groups_schedulers_and_closures_work(make):
    mine, peers = parameters(), parameters()
    grouped = make([{"params": mine[:2]}, {"params": mine[2:], "lr": 0.5}], weight_decay=0.0)
    both = [run(grouped, mine), run(make(peers, weight_decay=0.0), peers)]
    assert torch.equal(both[0][0], both[1][0])
    assert not torch.equal(both[0][2], both[1][2])
    assert [group["lr"] for group in grouped.param_groups][1] == 0.5
    schedule = torch.optim.lr_scheduler.LambdaLR(grouped, lambda step: 0.5**step)
    first = grouped.lr
    loss = grouped.step(lambda: sum(p.square().sum() for p in mine))
    schedule.step()
    assert loss.item() > 0
    assert grouped.lr == first / 2
    grouped.add_param_group({"params": [torch.ones(2, requires_grad=True)], "lr": 1.0})
    assert len(grouped.param_groups) == 3


def test_impossible_numbers_and_sparse_gradients_are_refused():
    with pytest.raises(ValueError, match="lr is -1"):
        LARS(parameters(), -1)
    with pytest.raises(ValueError, match="betas is"):
        LAMB(parameters(), 0.1, betas=(0.9, 1.0))
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="LAMB got a sparse gradient"):
        LAMB(table.parameters(), 0.1).step()
