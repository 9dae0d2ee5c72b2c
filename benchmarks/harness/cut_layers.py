"""A transformer block cut by matrices beside DTensor's, and ring attention beside dense attention on one rank."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.peers.parallel import block
from hpcdl.comm import Communicator, Group, TracingComm
from hpcdl.memory import meter
from hpcdl.parallel.sequence import fast_ring_attention, positions, ring_attention
from hpcdl.parallel.tensor import TransformerBlock

HIDDEN, HEADS, BATCH, TOKENS = 512, 8, 4, 128
ATTENTION = (1, 2, 64)  # batch, heads, width

Step = Callable[[], Any]


# -- a transformer block ----------------------------------------------------------------------------------------------


def dense_block() -> tuple[nn.TransformerEncoderLayer, torch.Tensor]:
    torch.manual_seed(0)
    options: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    return nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, **options), torch.randn(BATCH, TOKENS, HIDDEN)


def blocks(comm: Communicator) -> dict[str, Step]:
    """Return a forward and a backward pass of the block, on the same input."""
    dense, x = dense_block()
    arms = {"block": TransformerBlock.of(dense, comm), "DTensor block": block(dense)}
    torch.testing.assert_close(*(arm(x) for arm in arms.values()), rtol=1e-3, atol=1e-4)
    return {name: partial(forward_and_backward, arm, x) for name, arm in arms.items()}


def forward_and_backward(module: nn.Module, x: torch.Tensor) -> None:
    module.zero_grad()
    module(x.clone().requires_grad_()).sum().backward()


def sent(comm: Communicator) -> dict[str, int]:
    """Bytes that a rank sends in a step of the block, and what four all-reduces of a tensor like x are."""
    dense, x = dense_block()
    traced = TracingComm(comm)
    forward_and_backward(TransformerBlock.of(dense, traced), x)
    found = sum(event.nbytes for event in traced.trace if event.op == "send")
    return {"predicted": 4 * 2 * (comm.size - 1) * x.nbytes // comm.size, "measured": found}


# -- attention over a long sequence -----------------------------------------------------------------------------------


def attentions(comm: Communicator, tokens: int) -> dict[str, Step]:
    """Return a forward and a backward pass of attention over `tokens` tokens; the dense ones on one rank."""
    torch.manual_seed(0)
    batch, heads, width = ATTENTION
    whole = [torch.randn(batch, heads, tokens, width) for _ in range(3)]

    def dense(causal):
        return partial(attend, partial(scaled_dot_product_attention, is_causal=causal), whole)

    def ring(form, causal, order):
        mine = positions(order, tokens, comm.size, comm.rank)
        parts = [x[:, :, mine].contiguous() for x in whole]
        step = partial(attend, partial(form, comm=comm, causal=causal, order=order), parts)
        torch.testing.assert_close(step(), dense(causal)()[:, :, mine], rtol=1e-3, atol=1e-4)
        return step

    return {
        "dense attention": dense(False),
        "dense causal attention": dense(True),
        "ring attention": ring(fast_ring_attention, False, "contiguous"),
        "ring attention, plain": ring(ring_attention, False, "contiguous"),
        "causal ring attention": ring(fast_ring_attention, True, "contiguous"),
        "causal ring attention, striped": ring(fast_ring_attention, True, "striped"),
    }


def attend(f: Callable, inputs: list[torch.Tensor]) -> torch.Tensor:
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    y = f(q, k, v)
    y.sum().backward()
    return y.detach()


def scores(comm: Communicator, tokens: int) -> dict[str, float]:
    """Return what plain ring attention holds at most for a forward pass, beside the same on one rank: mostly scores."""
    torch.manual_seed(0)
    batch, heads, width = ATTENTION
    whole = torch.randn(3, batch, heads, tokens, width)

    def peak(group: Communicator) -> int:
        q, k, v = whole[:, :, :, positions("contiguous", tokens, group.size, group.rank)].contiguous()
        with meter(q, k, v) as m:
            ring_attention(q, k, v, group)
            return m.highest["temporaries"]

    ring, alone = peak(comm), peak(Group(comm, [comm.rank]))
    return {"tokens": tokens, "ring": ring, "one rank": alone, "ratio": ring / alone}
