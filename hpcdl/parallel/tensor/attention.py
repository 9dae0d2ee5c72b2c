"""Self-attention with some heads on each rank (Shoeybi et al. 2019, "Megatron-LM", section 3)."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share, shares
from hpcdl.parallel.tensor.dense import parameter, require_plain
from hpcdl.parallel.tensor.linear import ColumnLinear, RowLinear


class HeadAttention(nn.Module):
    """This rank's heads of self-attention, from (batch, tokens, hidden) to the same shape: `qkv`, `out` are its layers.

    Heads are independent of each other: queries, keys and values come from a `ColumnLinear`, whose share is whole heads
    of each of the three, and go through a `RowLinear`. So one all-reduce forward (of the row layer), one backward (of
    the column layer). Ranks' numbers of heads may differ by one. `causal`: no token sees a later one.
    """

    def __init__(
        self,
        qkv: ColumnLinear,
        out: RowLinear,
        width: int,
        causal: bool = False,
        batch_first: bool = True,
    ):
        super().__init__()
        self.qkv, self.out, self.width, self.causal = qkv, out, width, causal
        self.batch_first = batch_first  # else x is (tokens, batch, hidden)

    @classmethod
    def of(
        cls, dense: nn.MultiheadAttention, comm: Communicator, causal: bool = False, sequence: int | None = None
    ) -> "HeadAttention":
        """Return this rank's heads of attention that every rank has whole; `sequence` as for `ColumnLinear`.

        Raises ValueError for keys or values of another size than the queries or with rows of their own (add_bias_kv,
        add_zero_attn), for dropout, and as `require_plain`.
        """
        require_plain(dense, nn.MultiheadAttention)
        hidden, heads, width = dense.embed_dim, dense.num_heads, dense.head_dim
        if dense.in_proj_weight is None or dense.bias_k is not None:
            raise ValueError(
                f"the attention has kdim={dense.kdim}, vdim={dense.vdim} and add_bias_kv={dense.bias_k is not None}; "
                f"split attention needs {hidden}, {hidden} and False"
            )
        if dense.add_zero_attn or dense.dropout:
            raise ValueError(
                f"the attention has add_zero_attn={dense.add_zero_attn} and dropout={dense.dropout}; split attention "
                "needs False and 0"
            )

        def of_heads(x: torch.Tensor) -> torch.Tensor:
            return share(x.view(3, heads, width, *x.shape[1:]), comm, dim=1).flatten(0, 2)

        weight, bias = (
            parameter(dense, f"in_proj_{name}", comm, of_heads, "heads of queries, keys and values")
            for name in ("weight", "bias")
        )
        out = parameter(
            dense.out_proj,
            "weight",
            comm,
            lambda x: share(x.view(hidden, heads, width), comm, dim=1).flatten(1),
            "heads",
        )
        assert weight is not None
        assert out is not None
        out_bias = parameter(dense.out_proj, "bias", comm)
        layers = ColumnLinear(weight, bias, comm, sequence), RowLinear(out, out_bias, comm, sequence)
        return cls(*layers, width, causal, dense.batch_first).train(dense.training)

    def forward(
        self,
        x: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        key_padding_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of all tokens to all; the masks are whole, and mean what they do for nn.MultiheadAttention."""
        if x.dim() == 2:
            padding = None if key_padding_mask is None else key_padding_mask[None]
            return self._attend(x[None], attn_mask, padding)[0]
        if self.batch_first:
            return self._attend(x, attn_mask, key_padding_mask)
        return self._attend(x.transpose(0, 1), attn_mask, key_padding_mask).transpose(0, 1)

    def _attend(self, x, attn_mask, key_padding_mask) -> torch.Tensor:
        qkv = self.qkv(x)
        heads = qkv.shape[-1] // (3 * self.width)
        q, k, v = qkv.unflatten(-1, (3, heads, self.width)).permute(2, 0, 3, 1, 4)  # each (batch, head, token, width)
        if attn_mask is None and key_padding_mask is None:
            y = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            y = scaled_dot_product_attention(q, k, v, self._added(q, attn_mask, key_padding_mask))
        return self.out(y.transpose(1, 2).flatten(2))

    def _added(self, q, attn_mask, key_padding_mask) -> torch.Tensor:
        """Return what is added to the scores: the masks in one, (batch, this rank's heads or 1, tokens, tokens)."""
        batch, heads, tokens, _ = q.shape
        added = q.new_zeros(batch, 1, tokens, tokens)
        if self.causal:
            added = added + _as_added(torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1), q)
        if attn_mask is not None:
            mask = _as_added(attn_mask, q)
            if mask.dim() == 3:  # (batch * all heads, tokens, tokens)
                whole = mask.shape[0] // batch
                sizes = shares(whole, self.qkv.comm.size)
                first = sum(sizes[: self.qkv.comm.rank])
                mask = mask.unflatten(0, (batch, whole))[:, first : first + heads]
            added = added + mask
        if key_padding_mask is not None:
            added = added + _as_added(key_padding_mask, q)[:, None, None]
        return added


def _as_added(mask: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return a mask as numbers to add: minus infinity where a mask of bool is True."""
    if mask.dtype != torch.bool:
        return mask.to(q.dtype)
    return torch.zeros_like(mask, dtype=q.dtype).masked_fill_(mask, float("-inf"))
