"""Ring attention: no rank ever has all keys, or more scores than one pair of blocks needs.

softmax(q k^T / sqrt(d)) v for a sequence whose tokens are on p ranks. Each block of keys gives a part of every query's
sum; the parts are put together exactly, with the running maximum and sum of exponentials (Milakov and Gimelshein 2018,
"Online normalizer calculation for softmax"; Liu, Zaharia and Abbeel 2023, "Ring attention"). Backward, scores are
computed again from the logarithm of that sum, as in Dao et al. 2022, "FlashAttention".
"""

import math

import torch

from hpcdl.comm import Communicator
from hpcdl.first_derivative import first_only
from hpcdl.parallel.sequence.blocks import Ring, check
from hpcdl.parallel.sequence.order import positions


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    comm: Communicator,
    causal: bool = False,
    order: str = "contiguous",
    length: int | None = None,
) -> torch.Tensor:
    """Attend to all ranks' tokens; q, k, v and the result, this rank's rows, are (batch, heads, its tokens, width).

    `order` says which tokens are its own; with `causal` none sees a later one, by its place in the whole sequence.
    `length` is the total number of tokens, needed if ranks have different numbers. Forward p-1 messages of keys and
    values, backward p-1 of these and p-1 of their gradients, each of 2 blocks. A pair of blocks without unmasked scores
    is skipped. Raises ValueError for shapes that do not fit, and for an unknown order.
    """
    return _RingAttention.apply(q, k, v, comm, causal, order, check(q, k, v, comm, length))


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, comm, causal, order, length):
        ring, places = Ring(comm, length), [positions(order, length, comm.size, r) for r in range(comm.size)]
        sums = _Sums(q)
        for owner, (keys, values) in ring.visits(k, v):
            sums.add(_scores(q, keys, places[comm.rank], places[owner], causal), values)
        out, log_sum = sums.mean()
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.ring, ctx.places, ctx.causal = ring, places, causal
        return out

    @staticmethod
    @first_only("ring attention")
    def backward(ctx, grad):
        q, k, v, out, log_sum = ctx.saved_tensors
        ring, places, rank = ctx.ring, ctx.places, ctx.ring.comm.rank
        inner = (grad * out).sum(-1, keepdim=True)
        dq, own, sums = torch.zeros_like(q), None, None
        for owner, block in ring.visits(k, v):
            scores = _scores(q, block[0], places[rank], places[owner], ctx.causal)
            gradient = _gradient(scores, log_sum, q, block, grad, inner, dq)
            del scores  # before the next ones
            if owner == rank:
                own = gradient
            else:
                sums = ring.home(sums, gradient, owner)
        assert own is not None  # its own block came first
        dk, dv = own if sums is None else own + sums
        return dq, dk, dv, None, None, None, None


class _Sums:
    """Of the keys so far, for each query: the largest score, and relative to it the sums of weights and of values."""

    def __init__(self, q: torch.Tensor):
        self.values, self.weights = torch.zeros_like(q), q.new_zeros(*q.shape[:3], 1)
        self.largest = torch.full_like(self.weights, -math.inf)

    def add(self, scores: torch.Tensor | None, values: torch.Tensor) -> None:
        """Add the scores of more keys, which become their weights, and the keys' values."""
        if scores is None:
            return
        before, self.largest = self.largest, torch.maximum(self.largest, scores.amax(-1, keepdim=True))
        weights, shrink = scores.sub_(self.largest).exp_(), before.sub_(self.largest).exp_()
        self.weights.mul_(shrink).add_(weights.sum(-1, keepdim=True))
        self.values.mul_(shrink).add_(weights @ values)

    def mean(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean of all values, and the logarithm of the sum of exponentials."""
        return self.values.div_(self.weights), self.largest.add_(self.weights.log_())


def _gradient(scores: torch.Tensor | None, log_sum, q, block, grad, inner, dq) -> torch.Tensor:
    """Return the gradient of a block of keys and values, and, added to `dq`, that of the queries."""
    gradient = torch.zeros_like(block)
    if scores is not None:
        weights = scores.sub_(log_sum).exp_()
        gradient[1] = weights.mT @ grad
        slopes = (grad @ block[1].mT).sub_(inner).mul_(weights).div_(math.sqrt(q.shape[-1]))
        gradient[0] = slopes.mT @ q
        dq += slopes @ block[0]
    return gradient


def _scores(q, keys, places: torch.Tensor, their_places: torch.Tensor, causal: bool) -> torch.Tensor | None:
    """q k^T / sqrt(d), minus infinity where the key is later than the query; None where no score counts."""
    if not (len(places) and len(their_places)) or (causal and places[-1] < their_places[0]):
        return None
    scores = (q @ keys.mT).div_(math.sqrt(q.shape[-1]))
    later = (places[:, None] < their_places).to(scores.device)
    return scores.masked_fill_(later, -math.inf) if causal else scores
