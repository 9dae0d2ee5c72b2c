"""Under autocast a split layer has the dtype of the layer that it is of and, up to rounding, its values."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.parallel.tensor import (
    ChannelConv2d,
    ColumnLinear,
    FilterConv2d,
    HeadAttention,
    RowLinear,
    TransformerBlock,
    VocabularyEmbedding,
)

P = 2
ROUND = 2.0**-5  # of 16 bits, in sums of a few terms of size 1


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def block():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)


# The dense layer, the split one, an input, and the axes along which input and output are split, if any.
LAYERS = {
    "row": (lambda: nn.Linear(6, 4), RowLinear.of, rows(3, 6), -1, None),
    "row, no bias": (lambda: nn.Linear(6, 4, bias=False), RowLinear.of, rows(3, 6), -1, None),
    "row, sequence": (lambda: nn.Linear(6, 4), lambda d, comm: RowLinear.of(d, comm, 4), rows(2, 4, 6), -1, 1),
    "column": (lambda: nn.Linear(6, 4), ColumnLinear.of, rows(2, 3, 6), None, -1),
    "channels": (lambda: nn.Conv2d(4, 6, 3), ChannelConv2d.of, rows(2, 4, 5, 5), 1, None),
    "filters": (lambda: nn.Conv2d(4, 6, 3), FilterConv2d.of, rows(2, 4, 5, 5), None, 1),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), HeadAttention.of, rows(2, 3, 8), None, None),
    "block": (block, lambda d, comm: TransformerBlock.of(d, comm, causal=False), rows(2, 3, 8), None, None),
    "embedding": (lambda: nn.Embedding(10, 4), VocabularyEmbedding.of, torch.arange(6).view(2, 3), None, None),
}


def part(x, dim, rank):
    return x if dim is None else x.tensor_split(P, dim)[rank]


@pytest.mark.parametrize("name", LAYERS)
def test_like_the_dense_layer(name):
    make, of, x, inputs, outputs = LAYERS[name]

    def dense():
        torch.manual_seed(0)
        return make()

    def rank(comm):
        layer = of(dense(), comm)
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(part(x, inputs, comm.rank))
        y.float().square().mean().backward()
        assert all(param.grad.dtype == param.dtype for param in layer.parameters())
        return y.detach()

    with torch.autocast("cpu", torch.bfloat16):
        whole = dense()
        expected = whole(x, x, x, need_weights=False)[0] if name == "attention" else whole(x)
    for rank_, y in enumerate(simulate(rank, P).results):
        assert y.dtype == expected.dtype
        torch.testing.assert_close(y, part(expected, outputs, rank_), rtol=ROUND, atol=ROUND)
