"""Layers that are cut against dense ones: values and gradients, what is sent, what each rank holds."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

from hpcdl.comm import RankError, simulate
from hpcdl.memory import meter
from hpcdl.parallel import tensor
from hpcdl.parallel.gradients import sum_gradients
from hpcdl.parallel.shares import shares
from hpcdl.parallel.tensor import (
    ChannelConv2d,
    ColumnLinear,
    FilterConv2d,
    HeadAttention,
    RowLinear,
    TransformerBlock,
    VocabularyEmbedding,
)

RANKS = [1, 2, 3, 4, 5]


@pytest.fixture(autouse=True)
def _float64():
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def all_reduce_bytes(n, p, itemsize=8):
    """What a ring all-reduce of n elements sends, all ranks together: 2(p-1) times n."""
    return 2 * (p - 1) * n * itemsize


def passes(module, x, dy):
    """Result and gradient of the input; gradients of weights stay with the module."""
    x = x.clone().requires_grad_()
    y = module(x)
    y.backward(dy)
    return y.detach(), x.grad


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def sent(run):
    return [event for event in run.trace if event.op == "send"]


# -- linear layers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", RANKS)
def test_column_and_row_layer_need_one_all_reduce_each_way(p):
    first, second = nn.Linear(5, 7), nn.Linear(7, 6)
    x, dy = torch.randn(2, 3, 5), torch.randn(2, 3, 6)
    expected = passes(lambda x: second(gelu(first(x))), x, dy)

    def rank(comm):
        column, row = ColumnLinear.of(first, comm), RowLinear.of(second, comm)
        assert column.weight.shape == (shares(7, p)[comm.rank], 5)
        found = passes(lambda x: row(gelu(column(x))), x, dy)
        return *found, column.weight.grad, column.bias.grad, row.weight.grad, row.bias.grad

    run = simulate(rank, p)
    for found in run.results:
        close(found[:2], expected)
        close(found[5], second.bias.grad)
    close(torch.cat([found[2] for found in run.results]), first.weight.grad)
    close(torch.cat([found[3] for found in run.results]), first.bias.grad)
    close(torch.cat([found[4] for found in run.results], dim=1), second.weight.grad)
    assert sum(run.bytes_sent) == all_reduce_bytes(dy.numel() + x.numel(), p)


@pytest.mark.parametrize(
    ("build", "shares_of_bytes"),
    [
        (lambda comm: ColumnLinear.of(nn.Linear(10, 16), comm), [11 * n for n in (6, 5, 5)]),
        (lambda comm: RowLinear.of(nn.Linear(16, 10), comm), [10 * n + 10 for n in (6, 5, 5)]),
        (lambda comm: FilterConv2d.of(nn.Conv2d(4, 7, 3), comm), [(4 * 9 + 1) * n for n in (3, 2, 2)]),
        (lambda comm: ChannelConv2d.of(nn.Conv2d(7, 4, 3), comm), [4 * 9 * n + 4 for n in (3, 2, 2)]),
        (
            lambda comm: HeadAttention.of(nn.MultiheadAttention(8, 4), comm),
            [70 * n + 8 for n in (2, 1, 1)],
        ),
        (lambda comm: VocabularyEmbedding.of(nn.Embedding(11, 3), comm), [3 * n for n in (4, 4, 3)]),
    ],
)
def test_no_rank_holds_more_than_its_share(build, shares_of_bytes):
    def rank(comm):
        layer = build(comm)
        with meter(layer) as m:
            sum(param.sum() for param in layer.parameters()).backward()
            return m.live["parameters"], m.live["gradients"]

    assert simulate(rank, 3).results == [(8 * n, 8 * n) for n in shares_of_bytes]


@pytest.mark.parametrize("p", RANKS)
def test_sequence_cut_replaces_the_all_reduces(p):
    first, second = nn.Linear(5, 7), nn.Linear(7, 6)
    x, dy = torch.randn(2, 8, 5), torch.randn(2, 8, 6)
    expected = passes(lambda x: second(gelu(first(x))), x, dy)

    def rank(comm):
        column, row = ColumnLinear.of(first, comm, sequence=8), RowLinear.of(second, comm, sequence=8)
        mine = (t.tensor_split(p, 1)[comm.rank] for t in (x, dy))
        found = passes(lambda x: row(gelu(column(x))), *mine)
        sum_gradients([row.bias], comm)
        return *found, column.weight.grad, row.weight.grad, row.bias.grad

    run = simulate(rank, p)
    close([torch.cat(parts, dim=1) for parts in list(zip(*run.results, strict=True))[:2]], list(expected))
    close(torch.cat([found[2] for found in run.results]), first.weight.grad)
    close(torch.cat([found[3] for found in run.results], dim=1), second.weight.grad)
    for found in run.results:
        close(found[4], second.bias.grad)
    bias = all_reduce_bytes(6, p)
    assert sum(run.bytes_sent) == all_reduce_bytes(dy.numel() + x.numel(), p) + bias
    assert {event.nbytes for event in sent(run)} <= {8 * 2 * n * m for n in shares(8, p) for m in (5, 6)} | {
        8 * n for n in shares(6, p)
    }


@pytest.mark.parametrize("p", RANKS)
def test_split_and_join_are_the_ends_of_what_is_cut(p):
    x, dy = torch.randn(3, 7, 2), torch.randn(3, 7, 2)

    def rank(comm):
        def there_and_back(x):
            return tensor.join(torch.sin(tensor.split(x, comm, dim=1)), comm, 7, dim=1)

        return passes(there_and_back, x, dy)

    for found in simulate(rank, p).results:
        close(found, passes(torch.sin, x, dy))


# -- convolutions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", RANKS)
def test_split_filters_are_a_dense_pair_with_one_all_reduce_each_way(p):
    first, second = nn.Conv2d(2, 7, 3, padding=1, stride=2), nn.Conv2d(7, 3, 3, dilation=2)
    x = torch.randn(2, 2, 13, 12)
    dy = torch.randn_like(second(first(x)))
    expected = passes(lambda x: second(torch.relu(first(x))), x, dy)

    def rank(comm):
        filters, channels = FilterConv2d.of(first, comm), ChannelConv2d.of(second, comm)
        found = passes(lambda x: channels(torch.relu(filters(x))), x, dy)
        return *found, filters.weight.grad, filters.bias.grad, channels.weight.grad, channels.bias.grad

    run = simulate(rank, p)
    for found in run.results:
        close(found[:2], expected)
        close(found[5], second.bias.grad)
    close(torch.cat([found[2] for found in run.results]), first.weight.grad)
    close(torch.cat([found[3] for found in run.results]), first.bias.grad)
    close(torch.cat([found[4] for found in run.results], dim=1), second.weight.grad)
    assert sum(run.bytes_sent) == all_reduce_bytes(dy.numel() + x.numel(), p)


def test_where_the_next_layer_wants_all_channels_they_are_joined():
    conv, x = nn.Conv2d(2, 7, 3), torch.randn(2, 2, 6, 6)
    dy = torch.randn_like(conv(x))

    def rank(comm):
        layer = FilterConv2d.of(conv, comm)
        return passes(lambda x: tensor.join(layer(x), comm, 7, dim=1), x, dy)

    for found in simulate(rank, 3).results:
        close(found, passes(conv, x, dy))


# -- attention and the whole block ------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("p", RANKS)
def test_attention_by_heads_is_torchs(p, causal):
    dense = nn.MultiheadAttention(12, 4, batch_first=True)
    x, dy = torch.randn(2, 5, 12), torch.randn(2, 5, 12)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected = passes(lambda x: dense(x, x, x, attn_mask=later, need_weights=False)[0], x, dy)

    def rank(comm):
        layer = HeadAttention.of(dense, comm, causal)
        return *passes(layer, x, dy), layer.qkv.weight.grad, layer.out.weight.grad

    run = simulate(rank, p)
    for found in run.results:
        close(found[:2], expected)
    heads = [found[2].view(3, -1, 12) for found in run.results]  # 5 ranks: one has none
    close(torch.cat(heads, dim=1).flatten(0, 1), dense.in_proj_weight.grad)
    close(torch.cat([found[3] for found in run.results], dim=1), dense.out_proj.weight.grad)
    assert sum(run.bytes_sent) == all_reduce_bytes(dy.numel() + x.numel(), p)


def block(hidden=12, heads=4, **options):
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True, "activation": "gelu", **options}
    return nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, **options)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("p", RANKS)
def test_transformer_block_is_torchs(p, cut):
    dense, (tokens, hidden) = block(), (7, 12)
    x, dy = torch.randn(2, tokens, hidden), torch.randn(2, tokens, hidden)
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    expected = passes(lambda x: dense(x, src_mask=later), x, dy)

    def rank(comm):
        layer = TransformerBlock.of(dense, comm, sequence=tokens if cut else None)
        mine = (t.tensor_split(p, 1)[comm.rank] if cut else t for t in (x, dy))
        found = passes(layer, *mine)
        if cut:
            sum_gradients(layer.shared_parameters(), comm)
        return *found, [param.grad for param in layer.shared_parameters()], layer.linear1.weight.grad

    run = simulate(rank, p)
    ys, dxs, shared, weights = zip(*run.results, strict=True)
    for whole, parts in zip(expected, (ys, dxs), strict=True):
        for found in [torch.cat(parts, dim=1)] if cut else parts:
            close(found, whole)
    close(torch.cat(weights), dense.linear1.weight.grad)
    norms = [p for norm in (dense.norm1, dense.norm2) for p in norm.parameters()]
    for found in shared:
        close(found, [p.grad for p in [*norms, dense.self_attn.out_proj.bias, dense.linear2.bias]])
    extra = all_reduce_bytes(6 * hidden, p) if cut else 0
    assert sum(run.bytes_sent) == 4 * all_reduce_bytes(x.numel(), p) + extra
    messages = 4 * 2 * (p - 1) + (2 * (p - 1) if cut else 0)  # an all-reduce, or a gather and a scatter: 2(p-1) each
    assert [sum(event.rank == r for event in sent(run)) for r in range(p)] == [messages] * p


def test_a_block_with_the_sequence_cut_keeps_less_for_the_backward_pass():
    p, tokens, dense = 4, 64, block()
    x = torch.randn(2, tokens, 12)

    def rank(comm, cut):
        layer = TransformerBlock.of(dense, comm, sequence=tokens if cut else None)
        mine = (x.tensor_split(p, 1)[comm.rank] if cut else x).clone().requires_grad_()
        with meter(layer, mine) as m:
            y = layer(mine)
            assert y.requires_grad
            return m.live["activations"]

    whole, cut = (max(simulate(rank, p, cut).results) for cut in (False, True))
    assert cut < 0.8 * whole  # what the column layers have gathered is whole


# -- what does not fit ------------------------------------------------------------------------------------------------


def wrong_share(comm):
    return ColumnLinear.of(nn.Linear(4, 4), comm, sequence=9)(torch.zeros(1, 3, 4))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (wrong_share, r"x has 3 along dimension -2; of 9 on 2 ranks its share is 5"),
        (lambda comm: FilterConv2d.of(nn.Conv2d(4, 4, 3, groups=2), comm), r"groups=2 .* is cut along its groups"),
        (lambda comm: TransformerBlock.of(block(dropout=0.1), comm), r"dropout=0\.1; a block that can be split"),
        (lambda comm: HeadAttention.of(nn.MultiheadAttention(4, 2, kdim=3), comm), r"keys or values of their own size"),
    ],
)
def test_what_cannot_be_cut_is_said(call, said):
    with pytest.raises(RankError, match=said):
        simulate(call, 2)
