"""A whole transformer block: attention by heads, then a column and a row layer, and a way past each of the two."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.nn.transformer import CausalBlock
from hpcdl.parallel.tensor.attention import HeadAttention
from hpcdl.parallel.tensor.dense import require_plain
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
        """Return this rank's part of a layer that every rank has whole.

        Raises ValueError unless the layer has norm_first=True, batch_first=True and no dropout (a mask would have to be
        the same on every rank), for an activation that is not elementwise or has weights, and as `require_plain`.
        """
        require_plain(dense, nn.TransformerEncoderLayer, CausalBlock.forward)
        if isinstance(dense, CausalBlock) and not causal:
            raise ValueError("the layer is a CausalBlock and causal is False; in its forward no token sees a later one")
        dropout = max(part.p for part in (dense.dropout, dense.dropout1, dense.dropout2))
        if not (dense.norm_first and dense.self_attn.batch_first) or dropout:
            raise ValueError(
                f"the layer has norm_first={dense.norm_first}, batch_first={dense.self_attn.batch_first} and "
                f"dropout={dropout}; a block that can be split has True, True and 0"
            )
        _require_elementwise(dense.activation, dense.linear1.weight)
        attention = HeadAttention.of(dense.self_attn, comm, causal, sequence)
        linear1, linear2 = ColumnLinear.of(dense.linear1, comm, sequence), RowLinear.of(dense.linear2, comm, sequence)
        norms = deepcopy(dense.norm1), deepcopy(dense.norm2)
        return cls(norms, attention, linear1, linear2, dense.activation).train(dense.training)

    def forward(
        self,
        x: torch.Tensor,
        src_mask: torch.Tensor | None = None,
        src_key_padding_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), src_mask, src_key_padding_mask)
        return x + self.linear2(self.activation(self.linear1(self.norm2(x))))

    def shared_parameters(self) -> list[nn.Parameter]:
        """Return what every rank has whole: the norms, and the biases of the row layers."""
        biases = [self.attention.out.bias, self.linear2.bias]
        return [*self.norm1.parameters(), *self.norm2.parameters(), *(bias for bias in biases if bias is not None)]


def _require_elementwise(activation: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor) -> None:
    """Raise ValueError unless `activation` of a part is the part of the activation: each rank has some of the units."""
    name = getattr(activation, "__name__", type(activation).__name__)
    if isinstance(activation, nn.Module) and next(activation.parameters(), None) is not None:
        raise ValueError(f"the activation {name} has weights, which every rank would train alone; take one without")
    x = torch.linspace(-3, 3, 16, dtype=like.dtype, device=like.device).view(2, 8)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        whole, first = activation(x), activation(x[:, :3])
    if whole.shape != x.shape or not torch.allclose(whole[:, :3], first, rtol=1e-2, atol=1e-3):
        raise ValueError(
            f"the activation {name} is not elementwise, and each rank has some of the units; take relu or gelu"
        )
