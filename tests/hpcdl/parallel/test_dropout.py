"""Dropout between a column and a row layer draws what one process draws."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from hpcdl.comm import RankError, simulate
from hpcdl.parallel.tensor import ColumnLinear, RowLinear, dropout

P, HIDDEN = 0.4, 7


def layers():
    torch.manual_seed(0)
    return nn.Linear(5, HIDDEN).double(), nn.Linear(HIDDEN, 3).double()


def rows():
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def seeded():
    """Give this rank the state in which one process begins to draw."""
    torch.manual_seed(2)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_masks_are_those_of_one_process(p):
    first, second = layers()
    seeded()
    whole = first(rows())
    expected = second(functional.dropout(functional.dropout(whole.relu(), P), P))
    expected.square().sum().backward()

    def rank(comm):
        column, row = ColumnLinear.of(first, comm), RowLinear.of(second, comm)
        h = column(rows()).relu()
        seeded()  # no other rank runs before the next message
        h = dropout(dropout(h, P, comm, HIDDEN), P, comm, HIDDEN)
        y = row(h)
        y.square().sum().backward()
        return y.detach(), column.bias.grad.as_subclass(torch.Tensor)

    found = simulate(rank, p).results
    for y, _ in found:
        torch.testing.assert_close(y, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.cat([bias for _, bias in found]), first.bias.grad, rtol=1e-12, atol=1e-12)


def test_nothing_is_dropped_in_evaluation():
    x = torch.ones(2, 4)
    assert simulate(lambda comm: dropout(x, P, comm, 8, training=False) is x, 2).results == [True, True]


def test_a_wrong_length_is_refused():
    with pytest.raises(RankError, match="dropout: x has 4 along dimension -1; of 7 on 2 ranks its share is 3"):
        simulate(lambda comm: dropout(torch.ones(2, 4), P, comm, 7), 2)
