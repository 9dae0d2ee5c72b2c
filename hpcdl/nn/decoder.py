"""A small decoder whose layers have names to plan with: attention's q, k, v, out, and the MLP's up and down.

After Vaswani et al. 2017, "Attention is all you need", with the norms first. A layer with only some of the heads works
unchanged: their number follows from q's output.
"""

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Attention(nn.Module):
    """(batch, tokens, hidden) to the same shape; no token sees a later one."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.size = hidden // heads
        self.q, self.k, self.v = (nn.Linear(hidden, hidden, bias=False) for _ in "qkv")
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """(batch, tokens, hidden) to the same shape, with four times as many numbers in between."""

    def __init__(self, hidden: int):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(gelu(self.up(x)))


class DecoderBlock(nn.Module):
    """Attention and MLP, each after a norm and with a shortcut."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.norm2, self.mlp = nn.LayerNorm(hidden), MLP(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Tokens (batch, tokens) to logits (batch, tokens, vocabulary); `tied`: one matrix reads and writes tokens.

    Raises ValueError unless `heads` divides `hidden`.
    """

    def __init__(self, vocabulary: int, hidden: int, heads: int, blocks: int, tied: bool = False):
        super().__init__()
        if hidden % heads:
            raise ValueError(f"hidden is {hidden} and heads is {heads}: each head has hidden / heads, a whole number")
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(DecoderBlock(hidden, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
