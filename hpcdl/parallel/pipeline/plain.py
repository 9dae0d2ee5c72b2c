"""A pipeline in one sitting: one forward, one backward (1F1B), with one stage of the network on each rank.

The batch is cut into m microbatches. Stage r of p starts with p - 1 - r forward passes, to fill the pipeline; then it
alternates, so that it never holds more than p - r microbatches, however large m is. GPipe runs all forward passes first
and holds m of them. Both wait for (p - 1) (t_F + t_B) seconds in a step of m (t_F + t_B) seconds of work. `stage.py`
runs any schedule, several stages per rank, and the gradients of inputs and weights apart (Narayanan et al. 2021,
"Efficient large-scale language model training on GPU clusters").
"""

from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import nn

from hpcdl.comm import Communicator


def train_step(  # noqa: C901 -- one pass through the file shows a whole step
    stage: nn.Module,
    microbatches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    hidden: Sequence[int],
    comm: Communicator,
    warmup: int | None = None,
) -> float:
    """Add to the gradients of `stage` those of the mean loss of the batch; return that loss (0 on all other ranks).

    `microbatches` has (x, y) of each, all with equally many rows, on every rank; the first stage reads x, the last y.
    A row has the shape `hidden` between stages, and the dtype of the stage's weights. `loss_fn` is a mean over rows.
    `warmup` forward passes come first: p - 1 - r by default (1F1B), m in GPipe.
    """
    m, rank = len(microbatches), comm.rank
    first, last = rank == 0, rank == comm.size - 1
    warmup = min(comm.size - 1 - rank if warmup is None else warmup, m)
    dtype = next(stage.parameters()).dtype
    held = deque[tuple[torch.Tensor, torch.Tensor]]()  # (input, output) of microbatches between forward and backward
    sent, total = [], 0.0

    def forward(k: int) -> float:
        x, y = microbatches[k]
        if not first:
            x = torch.empty(len(x), *hidden, dtype=dtype)
            comm.recv(x, rank - 1, tag=k)
            x.requires_grad_()
        out = stage(x)
        if last:
            out = loss_fn(out, y) / m
        else:
            sent.append(comm.isend(out.detach(), rank + 1, tag=k))
        held.append((x, out))
        return out.item() if last else 0.0

    def backward(k: int) -> None:
        x, out = held.popleft()
        gradient = None
        if not last:
            gradient = torch.empty_like(out)
            comm.recv(gradient, rank + 1, tag=k)
        out.backward(gradient)
        if not first:
            assert x.grad is not None  # the stage used its input
            sent.append(comm.isend(x.grad, rank - 1, tag=k))

    for k in range(m + warmup):
        if k < m:
            total += forward(k)
        if k >= warmup:
            backward(k - warmup)
    for request in sent:
        request.wait()
    return total
