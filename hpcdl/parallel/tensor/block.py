"""A whole transformer block: attention by heads, then a column and a row layer, and a way past each of the two."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.parallel.tensor.attention import HeadAttention
from hpcdl.parallel.tensor.linear import ColumnLinear, RowLinear


class TransformerBlock(nn.Module):
    """x + attention(norm1(x)), then x + linear2(activation(linear1(norm2(x)))): one all-reduce per half and direction.

    x: (batch, tokens, hidden), the same on every rank. With `sequence`, the tokens of the whole sequence, x and the
    result are this rank's share of them: norms work on that alone, and each all-reduce becomes a reduce-scatter and
    an all-gather, which are as many bytes (Korthikanti et al. 2022). Then the gradients of `shared_parameters()` are of
    this rank's tokens: `sum_gradients(block.shared_parameters(), comm)` before the optimizer's step.
    """

    def __init__(
        self,
        norms: tuple[nn.Module, nn.Module],
        attention: HeadAttention,
        linear1: ColumnLinear,
        linear2: RowLinear,
        activation: Callable[[torch.Tensor], torch.Tensor],
    ):
        super().__init__()
        self.norm1, self.norm2 = norms
        self.attention, self.linear1, self.linear2, self.activation = attention, linear1, linear2, activation

    @classmethod
    def of(
        cls, dense: nn.TransformerEncoderLayer, comm: Communicator, causal: bool = True, sequence: int | None = None
    ) -> "TransformerBlock":
        """This rank's part of a layer that every rank has whole.

        Raises ValueError unless the layer has norm_first=True, batch_first=True and no dropout (a mask would have to be
        the same on every rank).
        """
        dropout = max(part.p for part in (dense.dropout, dense.dropout1, dense.dropout2))
        if not (dense.norm_first and dense.self_attn.batch_first) or dropout:
            raise ValueError(
                f"the layer has norm_first={dense.norm_first}, batch_first={dense.self_attn.batch_first} and "
                f"dropout={dropout}; a block that can be split has True, True and 0"
            )
        attention = HeadAttention.of(dense.self_attn, comm, causal, sequence)
        linear1, linear2 = ColumnLinear.of(dense.linear1, comm, sequence), RowLinear.of(dense.linear2, comm, sequence)
        return cls((deepcopy(dense.norm1), deepcopy(dense.norm2)), attention, linear1, linear2, dense.activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.linear2(self.activation(self.linear1(self.norm2(x))))

    def shared_parameters(self) -> list[nn.Parameter]:
        """What every rank has whole: the norms, and the biases of the row layers."""
        biases = [self.attention.out.bias, self.linear2.bias]
        return [*self.norm1.parameters(), *self.norm2.parameters(), *(bias for bias in biases if bias is not None)]
