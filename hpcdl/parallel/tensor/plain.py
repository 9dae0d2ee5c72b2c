"""Tensor parallelism in one sitting: a transformer block whose matrices are split over the ranks.

Two matrices in a row, y = f(x A) B: the first is split by columns, the second by rows. Then each rank computes with its
own part of the hidden units from x to its term of y, and one all-reduce sums the terms. Backward, one all-reduce sums
the gradient of x. Attention is split in the same way, by heads. So a block sends four messages, whatever its depth in
matrices. The other files of this folder have biases, masks, sequence parallelism and more (Shoeybi et al. 2019,
"Megatron-LM", section 3, where the two functions below are called f and g).
"""

from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.first_derivative import first_only


class Copy(torch.autograd.Function):
    """Forward nothing happens; backward the gradient is summed over the ranks, which each used x for their part."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, comm: Communicator) -> torch.Tensor:
        """Return `x`."""
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    @first_only("a layer in shares")
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the sum of all ranks' `dy`."""
        return _sum(dy, ctx.comm), None


class Sum(torch.autograd.Function):
    """Forward the ranks' terms are summed; backward nothing happens, since every rank has the gradient of the sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, comm: Communicator) -> torch.Tensor:
        """Return the sum of all ranks' `x`."""
        return _sum(x, comm)

    @staticmethod
    @first_only("a layer in shares")
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return `dy`."""
        return dy, None


def _sum(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    x = x.clone(memory_format=torch.contiguous_format)
    ring_all_reduce(x, comm)
    return x


def columns(weight: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return this rank's columns of a matrix, (inputs, outputs): the outputs that it computes."""
    return weight.tensor_split(comm.size, dim=1)[comm.rank].clone()


def rows(weight: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return this rank's rows of a matrix, (inputs, outputs): the inputs that it has."""
    return weight.tensor_split(comm.size, dim=0)[comm.rank].clone()


def mlp(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return gelu(x A) B, the same on every rank; x: (..., d), `a`: this rank's columns of A, `b`: its rows of B."""
    return Sum.apply(gelu(Copy.apply(x, comm) @ a) @ b, comm)


def attention(
    x: torch.Tensor, qkv: tuple[torch.Tensor, ...], out: torch.Tensor, width: int, comm: Communicator
) -> torch.Tensor:
    """Return causal attention, the same on every rank; x: (batch, tokens, d).

    `qkv` are this rank's columns of three matrices, whole heads of `width` columns each; `out` are its rows.
    """
    x = Copy.apply(x, comm)
    q, k, v = ((x @ weight).unflatten(-1, (-1, width)).transpose(1, 2) for weight in qkv)
    heads = scaled_dot_product_attention(q, k, v, is_causal=True)  # (batch, this rank's heads, tokens, width)
    return Sum.apply(heads.transpose(1, 2).flatten(2) @ out, comm)


def block(x: torch.Tensor, weights: dict[str, torch.Tensor], width: int, comm: Communicator) -> torch.Tensor:
    """Return a transformer block's output, the same on every rank; x: (batch, tokens, d), heads of `width`.

    `weights` are this rank's parts: q, k, v, a by `columns`, out, b by `rows`. Norms have no weights here.
    """
    qkv = weights["q"], weights["k"], weights["v"]
    x = x + attention(layer_norm(x, x.shape[-1:]), qkv, weights["out"], width, comm)
    return x + mlp(layer_norm(x, x.shape[-1:]), weights["a"], weights["b"], comm)
