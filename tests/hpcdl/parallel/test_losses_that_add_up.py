"""Losses of a pipeline: each gives the numbers of one process in float64, or is refused, wherever in the batch it
shows."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from hpcdl.comm import RankError, simulate
from hpcdl.ddp.apart import plain
from hpcdl.parallel.pipeline import Layers, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import forward_only, one_f_one_b

ROWS, TOKENS, WIDTH, WORDS = 8, 5, 4, 7


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, TOKENS, WIDTH, dtype=torch.float64, generator=draw)
    return x, torch.randint(1, WORDS, (ROWS, TOKENS), generator=draw)


def cross_entropy(o, t, **options):
    return functional.cross_entropy(o.flatten(0, 1), t.flatten(), **options)


def in_one_process(loss, x, y):
    net = network()
    value = loss(net(x), y)
    value.backward()
    return value.item(), [p.grad for p in net.parameters()]


def in_a_pipeline(loss, x, y, m, orders=one_f_one_b, p=2, **options):
    def rank(comm):
        (chunk,) = cut_layers(network(), [(stage, 0) for stage in range(p)], comm.rank)
        between = [(TOKENS, WIDTH)] * (p - 1)
        batches = cut_batch(x, y, m)
        run = run_stage(comm, [Layers(chunk)], orders(p, m), batches, loss, between, dtype=torch.float64, **options)
        return run.loss, [None if p.grad is None else plain(p.grad).clone() for p in chunk.parameters()]

    results = simulate(rank, p).results
    return results[-1][0], [grad for _, grads in results for grad in grads]


def assert_same(found, right):
    assert found[0] == pytest.approx(right[0], rel=1e-12)
    torch.testing.assert_close(found[1], right[1], rtol=1e-12, atol=1e-14)


# -- losses that add up --------------------------------------------------------------------------------------------

SMOOTH = nn.CrossEntropyLoss(label_smoothing=0.1)
LENGTHS = torch.tensor([5, 4, 3, 2, 5, 1, 2, 3])


def of_lengths(o, t):
    """A mean over rows, of each row's mean over its words, one row after another."""
    return sum(functional.cross_entropy(row[t[i] > 0], t[i][t[i] > 0]) for i, row in enumerate(o)) / len(o)


def fits_eight_or_less(o, t):
    assert len(o) <= ROWS
    return cross_entropy(o, t)


class Cubed(torch.autograd.Function):
    """Mean of cubes, in a node that autograd does not know."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x**3).mean()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 3 * x**2 / x.numel()


ADD_UP = {
    "mean": cross_entropy,
    "smoothed labels": lambda o, t: SMOOTH(o.flatten(0, 1), t.flatten()),
    "sum divided by rows": lambda o, t: cross_entropy(o, t, reduction="sum") / len(o),
    "squares": lambda o, t: (o.mean(-1) - t).square().mean(),
    "absolute": lambda o, t: functional.smooth_l1_loss(o.sum(-1), t.double()),
    "divergence": lambda o, t: functional.kl_div(
        o.log_softmax(-1), functional.one_hot(t, WORDS).double(), reduction="batchmean"
    ),
    "two classes": lambda o, t: functional.binary_cross_entropy_with_logits(o, functional.one_hot(t, WORDS).double()),
    "two terms": lambda o, t: cross_entropy(o, t) + 0.1 * o.logsumexp(-1).square().mean(),
    "softmax over as many words as rows": lambda o, t: o[:, :2].softmax(1).square().mean(),
    "largest of each row": lambda o, t: o.flatten(1).amax(1).mean(),
    "root of each row": lambda o, t: o.square().mean((1, 2)).sqrt().mean(),
    "rows one by one": of_lengths,
    "a node of its own": lambda o, t: Cubed.apply(o),
    "takes no more rows": fits_eight_or_less,
}


@pytest.mark.parametrize("m", [2, 3, ROWS])
@pytest.mark.parametrize("name", ADD_UP)
def test_losses_that_add_up(name, m):
    x, y = batch()
    if name == "rows one by one":
        y[torch.arange(TOKENS) >= LENGTHS[:, None]] = 0
    assert_same(in_a_pipeline(ADD_UP[name], x, y, m), in_one_process(ADD_UP[name], x, y))


@pytest.mark.parametrize("m", [2, 3, ROWS])
def test_sums_add_up(m):
    x, y = batch()
    y[5:, 2:] = -100
    loss = functools.partial(cross_entropy, reduction="sum")
    found = in_a_pipeline(loss, x, y, m, total=int((y >= 0).sum()))
    assert_same(found, in_one_process(cross_entropy, x, y))


# -- losses that do not --------------------------------------------------------------------------------------------

WEIGHTS = torch.linspace(0.5, 3, WORDS).double()


def masked(o, t):
    return (o.square().mean(-1) * (t > 1)).sum() / (t > 1).sum()


DO_NOT = {
    "words left out": lambda o, t: cross_entropy(o, t, ignore_index=1),
    "weights of classes": lambda o, t: cross_entropy(o, t, weight=WEIGHTS),
    "a mask": masked,
    "root of the mean": lambda o, t: o.square().mean().sqrt(),
    "norm": lambda o, t: o.norm(),
    "largest of all": lambda o, t: o.square().mean() + o.flatten(1).sum(1).max(),
    "neighbours": lambda o, t: (o - o.roll(1, 0)).square().mean(),
    "products of rows": lambda o, t: functional.cross_entropy(o[:, 0] @ o[:, 1].T, torch.arange(len(o))),
    "sum": lambda o, t: cross_entropy(o, t, reduction="sum"),
    "a masked node of its own": lambda o, t: Cubed.apply(o[t > 1]),
}


@pytest.mark.parametrize("m", [2, 3, 4, ROWS])
@pytest.mark.parametrize("orders", [one_f_one_b, forward_only])
@pytest.mark.parametrize("name", DO_NOT)
def test_losses_that_do_not_add_up_are_refused(name, orders, m):
    """The first three rows are alike, so that they show nothing."""
    x, y = batch()
    x[1:3], y[:3] = x[0], 3
    y[3:, 2:] = 1
    with pytest.raises(RankError, match=r"is no mean over (its )?rows"):
        in_a_pipeline(DO_NOT[name], x, y, m, orders)


@pytest.mark.parametrize("name", ["mean", "squares", "root of the mean"])
@pytest.mark.parametrize("m", [2, ROWS])
def test_means_are_no_sums(name, m):
    x, y = batch()
    with pytest.raises(RankError, match=r"is no sum over (its )?rows"):
        in_a_pipeline({**ADD_UP, **DO_NOT}[name], x, y, m, reduction="sum")


def test_losses_of_one_code_are_told_apart():
    def make(reduction):
        return lambda o, t: cross_entropy(o, t, reduction=reduction)

    x, y = batch()
    in_a_pipeline(make("mean"), x, y, 2)
    with pytest.raises(RankError, match="it is no mean over rows"):
        in_a_pipeline(make("sum"), x, y, 2)


def test_one_microbatch_needs_not_add_up():
    x, y = batch()
    y[3:, 2:] = -100
    loss = lambda o, t: cross_entropy(o, t)  # noqa: E731 - a partial of cross_entropy would be read
    assert_same(in_a_pipeline(loss, x, y, 1), in_one_process(loss, x, y))


def test_evaluation_takes_losses_without_a_graph():
    x, y = batch()
    loss = lambda o, t: torch.tensor((o.numpy().argmax(-1) == t.numpy()).mean())  # noqa: E731
    found = in_a_pipeline(loss, x, y, 3, forward_only)[0]
    assert found == pytest.approx(loss(network()(x).detach(), y).item(), rel=1e-12)


def test_parameters_of_a_loss_are_refused():
    x, y = batch()
    scale = nn.Parameter(torch.ones((), dtype=torch.float64))
    with pytest.raises(RankError, match=r"depends on a parameter of shape \(\), whose gradient no pipeline computes"):
        in_a_pipeline(lambda o, t: cross_entropy(o * scale, t), x, y, 2)
