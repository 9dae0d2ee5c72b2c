"""Sequence parallelism by all-to-all: heads are split in attention, tokens everywhere else.

After Jacobs et al. 2023, "DeepSpeed Ulysses: system optimizations for enabling training of extreme long sequence
transformer models".
"""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from hpcdl.collectives import all_to_all
from hpcdl.comm import Communicator
from hpcdl.first_derivative import first_only
from hpcdl.parallel.sequence.blocks import check
from hpcdl.parallel.shares import shares


def ulysses_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    comm: Communicator,
    causal: bool = False,
    length: int | None = None,
) -> torch.Tensor:
    """Attend to all ranks' tokens; q, k, v and the result, this rank's rows, are (batch, heads, its tokens, width).

    A rank has neighbouring tokens; `length` is the number of all tokens if ranks have unequally many. One all-to-all
    gives each rank all tokens of its share of the heads, another returns the results: each rank sends (p-1)/p of q, k,
    v and the result, forward and backward. Ranks beyond the number of heads have no work. Raises ValueError for shapes
    that do not fit.
    """
    whole = check(q, k, v, comm, length)
    q_mine, k_mine, v_mine = exchange(torch.stack([q, k, v]), comm, cut=2, join=3, length=whole)
    y = scaled_dot_product_attention(q_mine, k_mine, v_mine, is_causal=causal)
    return exchange(y, comm, cut=2, join=1, length=q.shape[1])


def exchange(x: torch.Tensor, comm: Communicator, cut: int, join: int, length: int) -> torch.Tensor:
    """Turn each rank's share of `x` along `join` into a share along `cut`; backward does the reverse.

    `length` is the whole's along `join`. One all-to-all: rank r gets share r of each `x` along `cut`.
    """
    return _Exchange.apply(x, comm, cut, join, length)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, cut, join, length):
        ctx.comm, ctx.cut, ctx.join, ctx.length = comm, cut, join, x.shape[cut]
        return _exchange(x, comm, cut, join, length)

    @staticmethod
    @first_only("an exchange of heads")
    def backward(ctx, dy):
        return _exchange(dy, ctx.comm, ctx.join, ctx.cut, ctx.length), None, None, None, None


def _exchange(x: torch.Tensor, comm: Communicator, cut: int, join: int, length: int) -> torch.Tensor:
    pieces = x.tensor_split(comm.size, cut)
    shapes = [list(pieces[comm.rank].shape) for _ in pieces]
    for shape, size in zip(shapes, shares(length, comm.size), strict=True):
        shape[join] = size
    flat = torch.cat([piece.flatten() for piece in pieces])
    counts = [math.prod(shape) for shape in shapes]
    came = all_to_all(flat, comm, [piece.numel() for piece in pieces], counts).split(counts)
    return torch.cat([piece.view(shape) for piece, shape in zip(came, shapes, strict=True)], join)
