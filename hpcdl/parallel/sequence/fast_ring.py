"""Ring attention by torch's own attention kernel, block by block: the values of `ring_attention`, in less time.

The kernel goes through a pair of blocks in tiles that stay in the processor's cache, and gives the logarithm of each
query's sum of exponentials beside its result: with these, two partial results become one. A causal mask that is a
triangle is the kernel's own, and half of the work: so are all masks here, since tokens are `contiguous` (a triangle for
the own block, all or nothing for others) or `striped` (a triangle with the diagonal for ranks up to this one, without
for those after it). CPU tensors alone, as the kernel.
"""

import math
from typing import NamedTuple

import torch

from hpcdl.comm import Communicator
from hpcdl.first_derivative import first_only
from hpcdl.parallel.sequence.blocks import Ring, check
from hpcdl.parallel.sequence.order import positions

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def fast_ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    comm: Communicator,
    causal: bool = False,
    order: str = "contiguous",
    length: int | None = None,
) -> torch.Tensor:
    """Compute `ring_attention` with the same arguments, messages and, except for rounding, values."""
    return _FastRingAttention.apply(q, k, v, comm, causal, order, check(q, k, v, comm, length))


class _Pair(NamedTuple):
    """Which queries of the own block and keys of another one count, and whether these form a triangle."""

    queries: slice
    keys: slice
    triangle: bool


class _FastRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, comm, causal, order, length):
        ring, places = Ring(comm, length), [positions(order, length, comm.size, r) for r in range(comm.size)]
        wide = torch.promote_types(q.dtype, torch.float32)  # of the kernel's logarithms, also in 16 bits
        out, log_sum = torch.zeros_like(q, dtype=wide), q.new_full(q.shape[:3], -math.inf, dtype=wide)
        for owner, (keys, values) in ring.visits(k, v):
            if pair := _pair(places[comm.rank], places[owner], causal):
                rows, columns, triangle = pair
                part, its_log = _forward(q[:, :, rows], keys[:, :, columns], values[:, :, columns], 0.0, triangle)
                _merge(out[:, :, rows], log_sum[:, :, rows], part.to(wide), its_log)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.ring, ctx.places, ctx.causal = ring, places, causal
        return out

    @staticmethod
    @first_only("ring attention")
    def backward(ctx, grad):
        q, k, v, out, log_sum = ctx.saved_tensors
        ring, places, rank = ctx.ring, ctx.places, ctx.ring.comm.rank
        dq, own, sums = torch.zeros_like(q), None, None
        for owner, block in ring.visits(k, v):
            gradient = torch.zeros_like(block)
            if pair := _pair(places[rank], places[owner], ctx.causal):
                rows, columns, triangle = pair
                mine = (x[:, :, rows] for x in (grad, q))
                theirs = (x[:, :, columns] for x in block)
                tail = out[:, :, rows], log_sum[:, :, rows]
                part, *rest = _backward(*mine, *theirs, *tail, 0.0, triangle)
                dq[:, :, rows] += part
                for target, its in zip(gradient, rest, strict=True):
                    target[:, :, columns] = its
            if owner == rank:
                own = gradient
            else:
                sums = ring.home(sums, gradient, owner)
        assert own is not None  # its own block came first
        dk, dv = own if sums is None else own + sums
        return dq, dk, dv, None, None, None, None


def _pair(places: torch.Tensor, their_places: torch.Tensor, causal: bool) -> _Pair | None:
    """Return None where no score counts."""
    everything = slice(None)
    if not (len(places) and len(their_places)):
        return None
    if not causal or places[0] > their_places[-1]:
        return _Pair(everything, everything, False)
    if places[-1] < their_places[0]:
        return None
    if places[0] >= their_places[0]:  # query i sees keys 0 to i
        return _Pair(everything, slice(len(places)), True)
    return _Pair(slice(1, None), slice(len(places) - 1), True)  # query i sees keys 0 to i - 1


def _merge(out: torch.Tensor, log_sum: torch.Tensor, part: torch.Tensor, its_log: torch.Tensor) -> None:
    """Put `part`, of other keys, into `out`: both are means of values, weighted by their sums of exponentials."""
    total = torch.logaddexp(log_sum, its_log)
    out.mul_((log_sum - total).exp_().unsqueeze(-1)).add_(part.mul_((its_log - total).exp_().unsqueeze(-1)))
    log_sum.copy_(total)
