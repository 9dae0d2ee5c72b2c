"""A decoder with some heads and some tokens on each rank: tensor and sequence parallelism at once."""

from copy import deepcopy
from typing import cast

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.parallel import HeadAttention, TransformerBlock, ring_attention, split_transformer
from hpcdl.parallel.sequence import positions


class RingHeads(HeadAttention):
    """A `HeadAttention` with `length` tokens split over the ranks of `ring`; no token sees a later one."""

    ring: Communicator
    length: int

    @classmethod
    def around(cls, attention: HeadAttention, ring: Communicator, length: int) -> "RingHeads":
        """Return the same heads for this rank's tokens."""
        heads = cls(attention.qkv, attention.out, attention.width, causal=True)
        heads.ring, heads.length = ring, length
        return heads

    def _attend(self, x, attn_mask, key_padding_mask) -> torch.Tensor:
        qkv = self.qkv(x)
        q, k, v = qkv.unflatten(-1, (3, -1, self.width)).permute(2, 0, 3, 1, 4)
        y = ring_attention(q, k, v, self.ring, causal=True, length=self.length)
        return self.out(y.transpose(1, 2).flatten(2))


class TokenPositions(nn.Module):
    """`hpcdl.nn.transformer.Positions` for the tokens `first`, `first` + 1, ... of a sequence."""

    def __init__(self, weight: nn.Parameter, first: int):
        super().__init__()
        self.weight, self.first = weight, first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[self.first : self.first + x.shape[1]]


def split_decoder(dense: nn.Sequential, tensor: Communicator, ring: Communicator, length: int) -> nn.Sequential:
    """Return this rank's part of every layer of a `hpcdl.nn.transformer.transformer`, for its share of `length` tokens.

    It works like `split_transformer`. With more than one rank in `ring`, tokens are split, and each rank's gradients
    come from its own tokens.
    """
    layers = split_transformer(dense, tensor)
    if ring.size == 1:
        return layers
    embedding = cast(nn.Sequential, layers[0])
    weight = deepcopy(cast(nn.Parameter, embedding[1].weight))
    embedding[1] = TokenPositions(weight, int(positions("contiguous", length, ring.size, ring.rank)[0]))
    for layer in layers:
        if isinstance(layer, TransformerBlock):
            layer.attention = RingHeads.around(layer.attention, ring, length)
    return layers
