"""The small decoder: shapes, what a token may see, and that it learns."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from hpcdl.cost.work import Transformer
from hpcdl.nn.transformer import transformer


def test_no_token_sees_a_later_one():
    torch.manual_seed(0)
    net, tokens = transformer(11, 6, hidden=8, heads=2, blocks=2), torch.randint(11, (3, 6))
    y = net(tokens)
    assert y.shape == (3, 6, 11)
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 11
    torch.testing.assert_close(net(changed)[:, :4], y[:, :4])
    assert not torch.isclose(net(changed)[:, 4:], y[:, 4:]).all()
    torch.testing.assert_close(net(tokens[:, :3]), y[:, :3])


def test_it_has_the_weights_that_are_counted_and_those_of_its_output():
    net = transformer(11, 6, hidden=8, heads=2, blocks=3)
    counted = Transformer(layers=3, hidden=8, sequence=6, vocabulary=11, heads=2).parameters
    assert sum(param.numel() for param in net.parameters()) == counted + 8 * 11 + 11


@pytest.mark.labs  # trains
def test_it_learns_a_pattern():
    torch.manual_seed(0)
    net, tokens = transformer(4, 8, hidden=16, heads=2, blocks=1), torch.arange(9).remainder(4).expand(2, 9)
    before = after = None
    for _ in range(60):
        after = cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        before = before or after.item()
        gradients = torch.autograd.grad(after, list(net.parameters()))
        with torch.no_grad():
            for param, gradient in zip(net.parameters(), gradients, strict=True):
                param -= 0.3 * gradient
    assert after.item() < 0.1 < 1.0 < before


def test_heads_must_divide():
    with pytest.raises(ValueError, match=r"hidden is 8 and heads is 3"):
        transformer(4, 8, hidden=8, heads=3, blocks=1)
