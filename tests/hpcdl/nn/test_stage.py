"""A stage of a pipeline: its gradients are autograd's, B and W apart, and wrong orders are said to be wrong."""

import pytest
import torch
from torch import nn

from hpcdl.nn.stage import Stage


def squared(y, target):
    return (y - target).square().mean()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 2, bias=False)).double()


def batch(rows):
    g = torch.Generator().manual_seed(1)
    return tuple([torch.randn(n, width, generator=g).double() for n in rows] for width in (3, 2))


def test_one_stage_has_autograds_gradients_with_b_and_w_in_any_order():
    rows = [2, 3, 1]
    (x, y), module, plain = batch(rows), network(), network()
    sum(squared(plain(a), b) * n / 6 for a, b, n in zip(x, y, rows, strict=True)).backward()
    stage = Stage(module, rows, inputs=x, targets=y, loss=squared)
    stage.zero_grad()
    losses = [stage.forward(k) for k in range(3)]
    for k in (2, 0, 1):
        assert stage.backward(k, rows[k] / 6) is None
    for k in (1, 2, 0):
        stage.weights(k)
    for mine, right in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, right.grad)
    assert losses == pytest.approx([squared(plain(a), b).item() for a, b in zip(x, y, strict=True)])
    assert stage.most == 3
    assert [op for op, *_ in stage.events] == list("FFFBBBWWW")


def test_b_leaves_linear_weights_to_w():
    (x, _), module = batch([2]), network()
    stage = Stage(module, [2], takes=(3,), gives=(2,))
    y = stage.forward(0, x[0].clone())
    assert not y.requires_grad
    dx = stage.backward(0, torch.ones_like(y))
    given = x[0].clone().requires_grad_()
    network()(given).sum().backward()
    torch.testing.assert_close(dx, given.grad)
    assert module[0].weight.grad is None
    assert module[2].weight.grad is not None
    stage.weights(0)
    assert module[0].weight.grad is not None


def test_memory_for_messages_is_of_no_number_until_it_is_filled():
    stage = Stage(network(), [1, 2], takes=(3,), gives=(2,))
    assert stage.empty("F", 1).isnan().all()
    assert stage.empty("B", 0).isnan().all()


def test_a_microbatch_without_rows_is_refused():
    with pytest.raises(ValueError, match=r"rows is \[2, 0\]; a microbatch has 1 or more"):
        Stage(network(), [2, 0])


def test_memory_for_messages_has_the_shape_of_the_microbatch():
    stage = Stage(network(), [2, 4], takes=(7, 3), gives=(2,))
    assert stage.empty("F", 1).shape == (4, 7, 3)
    assert stage.empty("B", 0).shape == (2, 2)
    assert stage.empty("F", 0).dtype == torch.float64


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([("backward", 0, 1.0)], "B of microbatch 0 comes before its F, or twice"),
        ([("forward", 0), ("forward", 0)], "F of microbatch 0 comes twice"),
        ([("forward", 0), ("weights", 0)], "W of microbatch 0 comes before its B, or twice"),
        ([("forward", 0), ("backward", 0, 1.0), ("backward", 0, 1.0)], "B of microbatch 0"),
    ],
)
def test_an_order_that_is_none_is_one_sentence(calls, said):
    x, y = batch([2])
    stage = Stage(network(), [2], inputs=x, targets=y, loss=squared)
    *before, (name, *arguments) = calls
    for earlier, *given in before:
        getattr(stage, earlier)(*given)
    with pytest.raises(ValueError, match=said):
        getattr(stage, name)(*arguments)


def test_a_stage_without_a_batch_needs_an_input():
    with pytest.raises(ValueError, match="only the first stage has the batch"):
        Stage(network(), [2]).forward(0)


@pytest.mark.parametrize("frozen", [("0.weight",), ("0.bias", "3.weight"), ("0.weight", "0.bias", "3.weight")])
def test_frozen_weights_have_no_gradient(frozen):
    (x, y), module, plain = batch([2]), network(), network()
    for each in (module, plain):
        for name in frozen:
            each.get_parameter(name).requires_grad_(False)
    squared(plain(x[0]), y[0]).backward()
    stage = Stage(module, [2], inputs=x, targets=y, loss=squared)
    stage.zero_grad()
    stage.forward(0)
    stage.backward(0, 1.0)
    stage.weights(0)
    for mine, right in zip(module.parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None) == (right.grad is None)
        if right.grad is not None:
            torch.testing.assert_close(mine.grad, right.grad)
