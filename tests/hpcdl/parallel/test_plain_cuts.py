"""The plain pipeline and the plain split block: value, messages, seconds and memory of the classes to use."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, mse_loss, scaled_dot_product_attention

from hpcdl.comm import simulate
from hpcdl.cost.collectives import TRAFFIC
from hpcdl.parallel.pipeline import Layers, cut_batch, run_stage
from hpcdl.parallel.pipeline import plain as pipeline
from hpcdl.parallel.schedules import SCHEDULES
from hpcdl.parallel.tensor import plain as tensor


def batch(rows=12):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 5, generator=generator).double(), torch.randn(rows, 3, generator=generator).double()


# -- pipeline ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["one_f_one_b", "gpipe"])
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (3, 1), (4, 6)])
def test_a_pipeline_is_the_class_to_use(p, m, schedule):
    widths = [5, *[8] * (p - 1), 3]

    def stage(comm):
        torch.manual_seed(comm.rank)
        return nn.Sequential(nn.Linear(*widths[comm.rank : comm.rank + 2]), nn.Tanh()).double()

    def plain(comm):
        mine = stage(comm)
        warmup = m if schedule == "gpipe" else None
        loss = pipeline.train_step(mine, cut_batch(*batch(), m), mse_loss, (8,), comm, warmup)
        return loss, [param.grad for param in mine.parameters()]

    def fast(comm):
        mine, orders = stage(comm), SCHEDULES[schedule].orders(p, m)
        rows = cut_batch(*batch(), m)
        run = run_stage(comm, [Layers(mine)], orders, rows, mse_loss, (8,), dtype=torch.float64)
        return run.loss or 0.0, [param.grad for param in mine.parameters()]

    for (loss, grads), (expected, others) in zip(simulate(plain, p).results, simulate(fast, p).results, strict=True):
        assert loss == pytest.approx(expected, rel=1e-12)
        for grad, other in zip(grads, others, strict=True):
            torch.testing.assert_close(grad, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("gpipe", "held"), [(False, [4, 3, 2, 1]), (True, [8] * 4)], ids=["1F1B", "GPipe"])
def test_pipelines_bubble_and_microbatches(gpipe, held):
    p, m = 4, 8

    class Stage(nn.Module):
        """Work of 1 s forward and 2 s backward; it counts the microbatches between the two."""

        def __init__(self, comm):
            super().__init__()
            self.weight, self.comm, self.held, self.most = nn.Parameter(torch.ones(1)), comm, 0, 0

        def forward(self, x):
            self.comm.compute(1.0)
            self.held += 1
            self.most = max(self.most, self.held)
            out = x * self.weight
            out.register_hook(self.backward)
            return out

        def backward(self, dy):
            self.comm.compute(2.0)
            self.held -= 1

    def rank(comm):
        stage, rows = Stage(comm), [(torch.ones(1, 1), torch.ones(1, 1))] * m
        pipeline.train_step(stage, rows, mse_loss, (1,), comm, m if gpipe else None)
        return stage.most

    run = simulate(rank, p)
    assert run.results == held
    assert run.seconds == pytest.approx((m + p - 1) * 3)


# -- tensor parallelism ------------------------------------------------------------------------------------------------

HIDDEN, WIDTH, HEADS = 12, 3, 4


def matrices():
    generator = torch.Generator().manual_seed(2)
    shapes = dict.fromkeys("qkv", (HIDDEN, HIDDEN)) | {"out": (HIDDEN, HIDDEN), "a": (HIDDEN, 20), "b": (20, HIDDEN)}
    return {name: torch.randn(shape, generator=generator).double() / 4 for name, shape in shapes.items()}


def whole_block(x, weights):
    y = layer_norm(x, x.shape[-1:])
    q, k, v = ((y @ weights[name]).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for name in "qkv")
    heads = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + heads @ weights["out"]
    return x + gelu(layer_norm(x, x.shape[-1:]) @ weights["a"]) @ weights["b"]


@pytest.mark.parametrize("p", [1, 2, 4])
def test_a_split_block_is_the_whole_block_with_four_sums(p):
    x, cut = torch.randn(2, 5, HIDDEN).double(), {"out": tensor.rows, "b": tensor.rows}

    def rank(comm):
        mine = {name: cut.get(name, tensor.columns)(w, comm).requires_grad_() for name, w in matrices().items()}
        own = x.clone().requires_grad_()
        y = tensor.block(own, mine, WIDTH, comm)
        y.square().sum().backward()
        return y.detach(), own.grad, {name: w.grad for name, w in mine.items()}

    weights, own = {name: w.requires_grad_() for name, w in matrices().items()}, x.clone().requires_grad_()
    y = whole_block(own, weights)
    y.square().sum().backward()
    run = simulate(rank, p)
    for r, (found, dx, grads) in enumerate(run.results):
        torch.testing.assert_close(found, y, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(dx, own.grad, rtol=1e-12, atol=1e-12)
        for name, grad in grads.items():
            mine = weights[name].grad.tensor_split(p, 0 if name in cut else 1)[r]
            torch.testing.assert_close(grad, mine, rtol=1e-12, atol=1e-12)
    assert sum(run.bytes_sent) == 4 * TRAFFIC["ring"](p, 8 * x.numel()).nbytes
