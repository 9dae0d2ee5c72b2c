"""Recomputation: the same bits, fewer bytes, one more forward pass; and the best choice of layers."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, dropout

from hpcdl.comm import simulate
from hpcdl.memory import saved
from hpcdl.sharding import FullyShardedDataParallel, checkpointed, plan


class Block(nn.Module):
    """Draws from torch's generator and from one of its own, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
        self.generator, self.calls = torch.Generator().manual_seed(1), 0

    def forward(self, x):
        self.calls += 1
        noise = torch.rand(x.shape, generator=self.generator, dtype=x.dtype)
        return dropout(self.layers(x), 0.3) + noise * x


def run(recompute):
    """Gradients, saved bytes, calls of each block, and the next numbers that the generators give."""
    torch.manual_seed(0)
    blocks = [Block().double() for _ in range(4)]
    inputs = torch.randn(8, 16, dtype=torch.float64, requires_grad=True)
    x = inputs
    params = [param for block in blocks for param in block.parameters()]
    with saved(inputs, *params) as kept:
        for block in blocks:
            x = checkpointed(block, x, generators=[block.generator]) if recompute else block(x)
    x.square().sum().backward()
    after = torch.rand(1).item(), *(torch.rand(1, generator=block.generator).item() for block in blocks)
    return [inputs.grad, *(param.grad for param in params)], kept.bytes, [block.calls for block in blocks], after


def test_gradients_are_the_same_bits_from_fewer_bytes():
    with torch.random.fork_rng():
        (grads, kept, calls, after), (expected, all_kept, once, usual) = run(True), run(False)
    assert all(torch.equal(a, b) for a, b in zip(grads, expected, strict=True))
    assert after == usual  # generators stand as if nothing had been done twice
    assert (calls, once) == ([2] * 4, [1] * 4)
    assert kept == 3 * 8 * 16 * 8  # of four blocks' inputs, the first is known
    assert all_kept > 4 * kept


def test_several_inputs_and_outputs_and_what_is_no_tensor():
    def f(x, y, scale, label):
        assert label == "words"
        return x * y * scale, (y + 1).detach(), x.sum()

    x, y = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    fixed = torch.randn(3, dtype=torch.float64)
    for a, b in ((x, y), (x, fixed)):
        x.grad = y.grad = None
        outputs = checkpointed(f, a, b, 3.0, "words")
        (outputs[0].sum() + outputs[1].sum()).backward()
        torch.testing.assert_close(x.grad, 3 * b.detach())
    assert y.grad is None
    assert checkpointed(f, fixed, fixed, 1.0, "words")[0].requires_grad is False
    with pytest.raises(TypeError, match="f returned a float"):
        checkpointed(lambda x: 1.0, x)


def test_inside_fully_sharded_layers(training):
    """Weights are gathered once more for the second forward pass, and the gradients are the same."""

    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.blocks = nn.Linear(4, 4), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = checkpointed(lambda x, block=block: torch.tanh(block(x)), x)
            return x

    def build():
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return Recomputed().double()

    def sharded(comm):
        model = FullyShardedDataParallel(build(), comm)
        optimizer = torch.optim.SGD(model.parameters(), 0.3)
        for n in training.batches:
            optimizer.zero_grad()
            x, y = training.mine(n, comm)
            cross_entropy(model(x), y).backward()
            model.synchronize()
            optimizer.step()
        return model.whole_state_dict()

    whole = build()
    optimizer = torch.optim.SGD(whole.parameters(), 0.3)
    for n in training.batches:
        optimizer.zero_grad()
        x, y = training.batch(n)
        cross_entropy(whole(x), y).backward()
        optimizer.step()
    for found in simulate(sharded, 3).results:
        for name, value in whole.named_parameters():
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-12, atol=1e-12)


def brute_force(nbytes, seconds, budget):
    """The fewest seconds of any set of layers."""
    every = range(len(nbytes))
    sets = [set(some) for k in range(len(nbytes) + 1) for some in combinations(every, k)]
    fits = [some for some in sets if sum(nbytes[i] for i in every if i not in some) <= budget]
    return min(sum(seconds[i] for i in some) for some in fits)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), st.integers(0, 40))
def test_a_plan_is_as_quick_as_any_that_fits(layers, budget):
    nbytes, seconds = [n for n, _ in layers], [s for _, s in layers]
    found = plan(nbytes, seconds, budget)
    assert found <= set(range(len(layers)))
    assert sum(n for i, n in enumerate(nbytes) if i not in found) <= budget
    assert sum(seconds[i] for i in found) == brute_force(nbytes, seconds, budget)


def test_plans_by_hand():
    assert plan([4, 4, 4], [1, 2, 3], 12) == set()
    assert plan([4, 4, 4], [1, 2, 3], 8) == {0}
    assert plan([4, 4, 4], [1, 2, 3], 3) == {0, 1, 2}
    assert plan([6, 5, 5], [10, 6, 6], 10) == {0}  # the one with most seconds per byte is not kept
    with pytest.raises(ValueError, match="each layer has both"):
        plan([1], [], 1)
    with pytest.raises(ValueError, match="0 or more"):
        plan([1], [1], -1)


def block(dtype=torch.float64):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 5)).to(dtype)


def on(way, use, dtype=torch.float64):
    """The gradients of a block's weights after `use(call, x)`, where `call(x)` is the block's output by `way`."""
    model, x = block(dtype), torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    use(lambda x: way(model, x), x)
    return [param.grad for param in model.parameters()]


def plainly(f, *inputs):
    return f(*inputs)


def ascend(call, x):
    """The fast gradient sign method: a pass to the input alone, then a step's pass."""
    (towards,) = torch.autograd.grad(call(x).square().mean(), x)
    call((x + 0.1 * towards.sign()).detach().requires_grad_()).square().mean().backward()


def cast(call, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(x)
    y.float().square().mean().backward()


def penalize(call, x):
    (slope,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    (slope.norm(dim=1) - 1).square().mean().backward()


@pytest.mark.parametrize(("use", "dtype"), [(ascend, torch.float64), (cast, torch.float32)], ids=["inputs", "autocast"])
def test_any_pass_has_the_plain_ones_gradients(use, dtype):
    for mine, right in zip(on(checkpointed, use, dtype), on(plainly, use, dtype), strict=True):
        assert torch.equal(mine, right)


def test_a_gradient_of_a_gradient_is_refused():
    assert on(plainly, penalize)[0] is not None
    with pytest.raises(RuntimeError, match="create_graph=True: a checkpointed call has no second derivative"):
        on(checkpointed, penalize)


@pytest.mark.parametrize("wrap", [lambda h: (h,), lambda h: {"state": [h]}], ids=["tuple", "dict"])
def test_a_variable_inside_an_argument_is_refused(wrap):
    h = torch.ones(5, requires_grad=True)
    with pytest.raises(TypeError, match="give each tensor as an argument of its own"):
        checkpointed(lambda x, state: x, torch.ones(5, requires_grad=True), wrap(h))
    assert checkpointed(lambda x, _: x, h, wrap(h.detach())).requires_grad
