"""A small decoder as a list of layers, which can be cut into stages: embedding, blocks, output.

After Vaswani et al. 2017, "Attention is all you need", and Radford et al. 2019, "Language models are unsupervised
multitask learners": the norm comes first in each half of a block, and no token sees a later one.
"""

import torch
from torch import nn


class Positions(nn.Module):
    """Adds a vector for a token's position: (batch, up to `sequence` tokens, hidden) to the same shape."""

    def __init__(self, sequence: int, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(sequence, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[: x.shape[1]]


class CausalBlock(nn.TransformerEncoderLayer):
    """torch's block, in which no token sees a later one: (batch, tokens, hidden) to the same shape."""

    def __init__(self, hidden: int, heads: int):
        super().__init__(hidden, heads, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # the mask is its own
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return super().forward(x, src_mask=later, is_causal=True)


def transformer(vocabulary: int, sequence: int, hidden: int, heads: int, blocks: int) -> nn.Sequential:
    """Tokens, (batch, up to `sequence`), to logits, (batch, tokens, vocabulary): `blocks` + 2 layers.

    Raises ValueError unless `heads` divides `hidden`.
    """
    if hidden % heads:
        raise ValueError(
            f"hidden is {hidden} and heads is {heads}; each head has hidden / heads numbers, a whole number"
        )
    embedding = nn.Sequential(nn.Embedding(vocabulary, hidden), Positions(sequence, hidden))
    output = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary))
    return nn.Sequential(embedding, *(CausalBlock(hidden, heads) for _ in range(blocks)), output)
