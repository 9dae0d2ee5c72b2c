"""Self-attention of which each rank computes some heads (Shoeybi et al. 2019, "Megatron-LM", section 3)."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share
from hpcdl.parallel.tensor.linear import ColumnLinear, RowLinear


class HeadAttention(nn.Module):
    """This rank's heads of self-attention, from (batch, tokens, hidden) to the same shape: `qkv`, `out` are its layers.

    Heads are independent of each other: queries, keys and values come from a `ColumnLinear`, whose share is whole heads
    of each of the three, and go through a `RowLinear`. So one all-reduce forward (of the row layer), one backward (of
    the column layer). Ranks' numbers of heads may differ by one. `causal`: no token sees a later one.
    """

    def __init__(self, qkv: ColumnLinear, out: RowLinear, width: int, causal: bool = False):
        super().__init__()
        self.qkv, self.out, self.width, self.causal = qkv, out, width, causal

    @classmethod
    def of(
        cls, dense: nn.MultiheadAttention, comm: Communicator, causal: bool = False, sequence: int | None = None
    ) -> "HeadAttention":
        """This rank's heads of attention that every rank has whole; `sequence` as for `ColumnLinear`.

        Raises ValueError for keys or values of another size than the queries.
        """
        hidden, heads, width = dense.embed_dim, dense.num_heads, dense.head_dim
        if dense.in_proj_weight is None or dense.bias_k is not None:
            raise ValueError(f"{dense} has keys or values of their own size or bias; attention is split without them")
        weight = share(dense.in_proj_weight.view(3, heads, width, hidden), comm, dim=1).flatten(0, 2)
        whole = dense.in_proj_bias
        bias = None if whole is None else share(whole.view(3, heads, width), comm, dim=1).flatten()
        out = share(dense.out_proj.weight.view(hidden, heads, width), comm, dim=1).flatten(1)
        out_bias = None if dense.out_proj.bias is None else dense.out_proj.bias.detach().clone()
        layers = ColumnLinear(weight, bias, comm, sequence), RowLinear(out, out_bias, comm, sequence)
        return cls(*layers, width, causal)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(x)
        heads = qkv.shape[-1] // (3 * self.width)
        q, k, v = qkv.unflatten(-1, (3, heads, self.width)).permute(2, 0, 3, 1, 4)  # each (batch, head, token, width)
        y = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))
