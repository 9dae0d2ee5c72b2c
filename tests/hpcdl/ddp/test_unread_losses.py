"""A loss that is no mean over samples is refused in every form that can be read, and warned of once in every other."""

import threading
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.backward_passes import Losses
from hpcdl.ddp.losses import Terms, leaves_of
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer, checkpointed

P, ROWS, STEPS = 3, 7, 3
WRAPPERS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
CHECKED = "the loss cannot be checked"


class Fused(torch.autograd.Function):
    """Cross entropy with its own derivative, as kernels that save memory have it."""

    @staticmethod
    def forward(ctx, z, t):
        kept = t >= 0
        one = functional.one_hot(t.clamp(min=0), z.shape[1])
        ctx.save_for_backward((z.softmax(-1) - one) * kept[:, None] / kept.sum())
        return -(z.log_softmax(-1) * one * kept[:, None]).sum() / kept.sum()

    @staticmethod
    def backward(ctx, gradient):
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


class Same(torch.autograd.Function):
    """The identity of a number."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def terms(z, t):
    return functional.cross_entropy(z, t) + sum(1e-3 * z.pow(2).mean() * i for i in range(40))


def summed(z, t):
    """A checkpointed sum, divided outside."""
    return checkpointed(lambda z: functional.cross_entropy(z, t, reduction="sum"), z) / (t >= 0).sum()


READ = {
    "plain": functional.cross_entropy,
    "checkpointed": lambda z, t: checkpointed(lambda z: functional.cross_entropy(z, t), z),
    "checkpointed twice": lambda z, t: checkpointed(lambda z: READ["checkpointed"](z, t), z),
    "checkpointed sum": summed,
    "checkpointed with its outputs": lambda z, t: sum(
        checkpointed(lambda z: (z, functional.cross_entropy(z, t)), z)[1:]
    ),
    "reentrant checkpoint": lambda z, t: checkpoint(lambda z: functional.cross_entropy(z, t), z, use_reentrant=True),
    "checkpoint": lambda z, t: checkpoint(lambda z: functional.cross_entropy(z, t), z, use_reentrant=False),
    "many terms": terms,
    "cast to bfloat16": lambda z, t: functional.cross_entropy(z, t).bfloat16().double(),
    "computed in bfloat16": lambda z, t: functional.cross_entropy(z.bfloat16(), t),
    "computed in float16": lambda z, t: functional.cross_entropy(z.half(), t),
    "picked by a dot product": lambda z, t: (
        functional.cross_entropy(z, t, reduction="none") @ (t >= 0).to(z.dtype) / (t >= 0).sum()
    ),
}
NOT_READ = {
    "fused": (Fused.apply, "it has FusedBackward"),
    "the identity": (lambda z, t: Same.apply(functional.cross_entropy(z, t)), "it has SameBackward"),
    "stacked": (lambda z, t: torch.stack([Fused.apply(z, t)] * 2).mean(), "it has FusedBackward"),
    "a weight in bfloat16": (
        lambda z, t: functional.cross_entropy(z, t).bfloat16() * torch.tensor(0.3).bfloat16(),
        "it has the number 0.300781 in bfloat16, rounded",
    ),
    "too many terms": (
        lambda z, t: functional.cross_entropy(z, t) + sum(0 * z.pow(2).mean() for _ in range(110)),
        "it has more than 320 nodes",
    ),
}


def targets(step, masked):
    t = torch.randint(0, 3, (ROWS,), generator=torch.Generator().manual_seed(step))
    t[0] = -100 if masked else t[0]
    return t


def train(loss, masked, kind=None, comm=None):
    """Train a small network by three steps, on this rank's samples of `comm`; return its weights."""
    size, rank = (1, 0) if comm is None else (comm.size, comm.rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    wrap = {"DDP": DistributedDataParallel, "ZeRO-3": FullyShardedDataParallel}.get(kind)
    called = wrap(model, comm) if wrap else model
    if kind in ("ZeRO-1", "ZeRO-2"):
        optimizer = ShardedOptimizer(
            model.parameters(), comm, lambda params: torch.optim.SGD(params, 0.1), int(kind[-1])
        )
    else:
        optimizer = torch.optim.SGD(called.parameters(), 0.1)
    for step in range(STEPS):
        x = torch.randn(ROWS, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step))[rank::size]
        if hasattr(optimizer, "count"):
            optimizer.count(len(x))
        loss(called(x), targets(step, masked)[rank::size]).backward()
        if wrap:
            called.synchronize()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([x.flatten() for x in (called if wrap else model).state_dict().values()])


def ranks(loss, masked, kind):
    """Return the weights on three ranks, and the warnings that they gave."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        weights = simulate(lambda comm: train(loss, masked, kind, comm), P).results
    return weights, [str(each.message) for each in said]


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("form", READ)
def test_read(form, kind):
    with pytest.raises(RankError, match="the ranks' losses are not means over their samples"):
        simulate(lambda comm: train(READ[form], True, kind, comm), P)
    weights, said = ranks(READ[form], False, kind)
    bits = 2.0**-7 if "float16" in form else 1e-12  # gradients have as many
    assert not said
    assert all(torch.allclose(each, train(READ[form], False), rtol=bits, atol=bits) for each in weights)


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("form", NOT_READ)
def test_said_once(form, kind):
    loss, why = NOT_READ[form]
    weights, said = ranks(loss, False, kind)
    (sentence,) = said
    assert f"{CHECKED} ({why})" in sentence
    bits = 2.0**-7 if "bfloat16" in form else 1e-12
    assert all(torch.allclose(each, train(loss, False), rtol=bits, atol=bits) for each in weights)


@pytest.mark.parametrize("kind", ["DDP", "ZeRO-1", "ZeRO-2"])
def test_gradients_by_hand(kind):
    def by_hand(z, t):
        params = list(leaves_of(z.grad_fn))
        found = torch.autograd.grad(functional.cross_entropy(z, t), params)
        for param, gradient in zip(params, found, strict=True):
            param.grad = gradient
        return SimpleNamespace(backward=lambda: None)

    weights, said = ranks(by_hand, False, kind)
    assert [f"{CHECKED} (no backward() gave this rank's gradients)" in each for each in said] == [True]
    assert all(torch.allclose(each, train(functional.cross_entropy, False), rtol=1e-12) for each in weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [255, 256, 257, 511, 3001])
def test_counts_in_16_bits(n, dtype):
    """A mean is 1 / n of a sum, although 16 bits round n, which a sum of weights saves."""
    z, t = torch.zeros(n, 3, dtype=dtype, requires_grad=True), torch.arange(n) % 3
    weights = torch.tensor([0.5, 1, 2], dtype=dtype)
    for loss, total in (
        (functional.cross_entropy(z, t), n),
        (functional.cross_entropy(z, t, ignore_index=2), (t != 2).sum()),
        (functional.cross_entropy(z, t, weights), weights.double()[t].sum()),
        (functional.mse_loss(z, z.detach() + 1), 3 * n),
        (z.sum() / n, n),
    ):
        (coefficient,) = Terms([loss], (None,)).coefficients
        assert coefficient * total == pytest.approx(1, rel=1e-7)
    rounded = z.sum() / torch.ones(n, dtype=dtype).sum()
    least = {torch.bfloat16: 256, torch.float16: 2048, torch.float32: 2**24}[dtype]  # below it every count is exact
    assert (Terms([rounded], (None,)).coefficients is None) == (n >= least)


def test_a_penalty_inside_a_function():
    """A parameter that a function of Python's uses, too, is not used in sums over its elements only."""
    w = nn.Parameter(torch.ones(2))
    assert Terms([w.pow(2).sum()], (None,)).elementwise == {id(w)}
    assert not Terms([Same.apply(w.prod()) + w.pow(2).sum()], (None,)).elementwise


def test_hooks_in_another_thread():
    """On a GPU gradients arrive in a thread of the GPU's."""
    losses, x = Losses(), torch.ones(2, requires_grad=True)
    losses.begin(2)

    def hook(gradient):
        thread = threading.Thread(target=losses.note)
        thread.start()
        thread.join()

    x.register_hook(hook)
    x.mean().backward()
    assert losses.weight(2) is not None


def test_nothing_stays():
    """No graph keeps what read it, and a graph that is used twice is read twice."""
    x = torch.ones(2, requires_grad=True)
    y = checkpointed(lambda x: x.mean(), x)
    losses = Losses()
    x.register_hook(lambda gradient: losses.note())
    for _ in range(2):
        losses.clear()
        losses.begin(2)
        y.backward(retain_graph=True)
        assert "reads_loss" not in vars(y.grad_fn)
    assert losses.unread == ""
