"""Some layers of a network as one stage of a pipeline: forward, the gradient of the input, the gradient of the weights.

B and W are separate, as zero-bubble schedules need: the backward pass of an `nn.Linear` computes the gradient of its
input and postpones the gradient of its weights, for which it keeps its input and its output's gradient. Other layers
have few weights, and compute their gradients in B.

Source: Qi et al. 2024, "Zero bubble pipeline parallelism".
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hpcdl.first_derivative import first_only

Loss = Callable[[Tensor, Tensor], Tensor]


class Stage:
    """One stage's training of a batch that is split into microbatches of `rows[k]` rows.

    `inputs` are the first stage's microbatches and `targets` the last one's, with `loss(output, target)`, a mean over
    its rows. The other stages receive (rows[k], *takes), and (rows[k], *gives) backward. `work(op)` is called in each
    op, and `events` is what was done: (op, microbatch, start, end) by `clock`.
    """

    def __init__(
        self,
        module: nn.Module,
        rows: Sequence[int],
        *,
        inputs: Sequence[Tensor] | None = None,
        targets: Sequence[Tensor] | None = None,
        loss: Loss | None = None,
        takes: Sequence[int] = (),
        gives: Sequence[int] = (),
        work: Callable[[str], None] = lambda op: None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        if any(n < 1 for n in rows):
            raise ValueError(f"rows is {list(rows)}; a microbatch has 1 or more: the mean over no row is not a number")
        self.module, self.rows, self.inputs, self.targets, self.loss = module, list(rows), inputs, targets, loss
        self.shapes = {"F": tuple(takes), "B": tuple(gives)}
        self.work, self.clock = work, clock
        self.dtype = next(module.parameters()).dtype
        self.events: list[tuple[str, int, float, float]] = []
        self.most = 0  # microbatches held at a time, each from its F to its W
        self._ends: dict[int, tuple[Tensor | None, Tensor]] = {}  # input and output of those between F and B
        self._later: dict[int, list[tuple]] = {}  # what the W of each microbatch needs
        for layer in module.modules():
            if type(layer) is nn.Linear:
                layer.forward = partial(self._linear, layer)  # type: ignore[method-assign]  # this stage's own layers

    def zero_grad(self) -> None:
        """Set the gradients of the weights to 0; frozen ones have none."""
        for param in self.module.parameters():
            param.grad = torch.zeros_like(param) if param.requires_grad else None

    def empty(self, op: str, k: int) -> Tensor:
        """Memory for what `op`, "F" or "B", of microbatch k receives; NaN, so that it shows if read too early."""
        return torch.full((self.rows[k], *self.shapes[op]), math.nan, dtype=self.dtype)

    def forward(self, k: int, x: Tensor | None = None) -> Tensor | float:
        """F: the output for microbatch k, whose input is x; on the last stage its mean loss, a float."""
        if k in self._later:
            raise ValueError(f"F of microbatch {k} comes twice; a stage does it once")
        start = self.clock()
        if self.inputs is not None:
            x = self.inputs[k]
        elif x is None:
            raise ValueError(f"F of microbatch {k} has no x; only the first stage has the batch")
        else:
            x = x.requires_grad_()
        self._now = self._later[k] = []
        self.most = max(self.most, len(self._later))
        y = self.module(x)
        if self.loss is not None and self.targets is not None:
            y = self.loss(y, self.targets[k])
        self._ends[k] = (x if self.inputs is None else None), y
        self._done("F", k, start)
        return y.detach() if self.loss is None else y.item()

    def backward(self, k: int, dy: Tensor | float) -> Tensor | None:
        """B: the gradient of microbatch k's input from that of its output, a float for the loss; None on stage 0."""
        if k not in self._ends:
            raise ValueError(f"B of microbatch {k} comes before its F, or twice")
        start = self.clock()
        x, y = self._ends.pop(k)
        y.backward(torch.as_tensor(dy, dtype=y.dtype))
        self._done("B", k, start)
        return None if x is None else x.grad

    def weights(self, k: int) -> None:
        """W: add microbatch k's part to the weights' gradients, and free its tensors."""
        if k in self._ends or k not in self._later:
            raise ValueError(f"W of microbatch {k} comes before its B, or twice")
        start = self.clock()
        with torch.no_grad():
            for layer, x, dy in self._later.pop(k):
                x, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
                if layer.weight.requires_grad:
                    _add(layer.weight, dy.T @ x)
                if layer.bias is not None and layer.bias.requires_grad:
                    _add(layer.bias, dy.sum(0))
        self._done("W", k, start)

    def _done(self, op: str, k: int, start: float) -> None:
        self.work(op)
        self.events.append((op, k, start, self.clock()))

    def _linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return _Apart.apply(x, layer.weight, layer.bias, layer, self._now)


def _add(param: Tensor, gradient: Tensor) -> None:
    param.grad = gradient if param.grad is None else param.grad.add_(gradient)


class _Apart(torch.autograd.Function):
    """A linear layer whose backward pass computes only the gradient of x, and postpones the rest into `later`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: nn.Linear, later: list) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.later = layer, later
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    @first_only("a stage whose weights wait for W")
    def backward(ctx: Any, dy: Tensor):
        x, weight = ctx.saved_tensors
        ctx.later.append((ctx.layer, x.detach(), dy))
        return (dy @ weight if ctx.needs_input_grad[0] else None), None, None, None, None
