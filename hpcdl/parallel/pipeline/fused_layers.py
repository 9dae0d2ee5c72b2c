"""`Layers` with matrix products that add directly to the gradient: the fast form of W.

autograd computes a weight's gradient for each microbatch, a tensor as large as the weight, and then adds it: with few
rows, memory traffic takes most of the time. One product can do both, weight.grad <- weight.grad + dy^T x, and touches
only the gradient (Megatron-LM's "gradient accumulation fusion").
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from hpcdl.ddp.apart import plain
from hpcdl.parallel.gradients import require_no_sum
from hpcdl.parallel.pipeline.calls import End, in_own_pass, in_transform
from hpcdl.parallel.pipeline.layers import Layers, Passed
from hpcdl.parallel.pipeline.values import Value
from hpcdl.sharding.pieces import untraced


class FusedLayers(Layers):
    """`Layers` with the same gradients, except for the order in which a product's terms are added.

    The weights and biases of linear layers get their gradients in place. Nothing is fused under autocast, nor where a
    weight is complex or has hooks.
    """

    def __init__(
        self, module: nn.Module, recompute: bool = False, rows_first: bool = False, *, replicated: bool = False
    ):
        super().__init__(module, recompute, rows_first, replicated=replicated)
        self._wanted: Collection[int] | None = None  # ids of the weights whose gradients are; None: of all
        self.recording = False  # a forward pass: gradients that it takes itself are autograd's

    def backward_input(self, k: int, dy: Value) -> Value:
        with self._want(()):
            return super().backward_input(k, dy)

    def wanted(self, params: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """Parameters whose gradients the current backward pass accumulates."""
        free = [param for param in params if param is not None and param.requires_grad]
        return [param for param in free if self._wanted is None or id(param) in self._wanted]

    def _backward_whole(self, passed: Passed, dy: Value) -> Value:
        self._wanted = None
        return super()._backward_whole(passed, dy)

    def _add_gradients(
        self,
        params: Sequence[torch.Tensor],
        ends: Sequence[End],
        gradients: Sequence[torch.Tensor],
        direct: bool | None,
    ) -> None:
        made: Any = ends[0].edge.node if direct else None  # of a linear layer it has all that W needs
        if getattr(made, "layers", None) is self:
            x, *own = made.saved_tensors
            if set(map(id, params)) == set(map(id, self.wanted(own))):
                add_gradients(x, params, gradients[0])
                return
        with self._want({id(param) for param in params}):
            super()._add_gradients(params, ends, gradients, direct)

    def _record(self, k: int, x: Value) -> Value:
        self.recording = True
        try:
            with _Fusing(self):
                return super()._record(k, x)
        finally:
            self.recording = False

    @contextlib.contextmanager
    def _want(self, ids: Collection[int]) -> Iterator[None]:
        self._wanted = ids
        try:
            yield
        finally:
            self._wanted = None


class _Fusing(TorchFunctionMode):
    """Within it, linear layers are `_Linear`s of `layers`."""

    def __init__(self, layers: FusedLayers):
        super().__init__()
        self._layers = layers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not linear:
            return func(*args, **(kwargs or {}))
        return _fused(self._layers, *args, **(kwargs or {}))


untraced(_Fusing.__torch_function__)


def _fused(layers: FusedLayers, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None):
    """torch's `linear`; a weight that is computed from others leaves its gradient to autograd."""
    leaves = _is_plain(weight) and (bias is None or _is_plain(bias))
    checkpoints = torch._C._autograd._top_saved_tensors_default_hooks(True)  # would compute it again without this mode
    if (
        checkpoints
        or not leaves
        or in_transform(input)
        or in_transform(weight)
        or not weight.requires_grad
        or weight.is_complex()
        or torch.is_autocast_enabled(input.device.type)
    ):
        return linear(input, weight, bias)
    return _Linear.apply(input, weight, bias, layers)


def _is_plain(param: torch.Tensor) -> bool:
    """Return whether a parameter is a leaf, and nothing listens to its gradient."""
    tables = param._backward_hooks, getattr(param, "_post_accumulate_grad_hooks", None)
    hooks = [hook for table in tables if table for hook in table.values()]
    return param.is_leaf and all(getattr(hook, "only_guards", False) for hook in hooks)


class _Linear(torch.autograd.Function):
    """x W^T + b, which adds to the gradients of W and b those that `layers` wants."""

    @staticmethod
    def forward(ctx, x, weight, bias, layers):
        ctx.save_for_backward(x, weight, bias)
        ctx.layers = layers
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx, dy):
        x, weight, bias = ctx.saved_tensors
        dx = dy @ weight if ctx.needs_input_grad[0] else None
        if ctx.layers.recording or not in_own_pass():
            rows = _rows(dy)
            return dx, rows.T @ _rows(x), None if bias is None else rows.sum(0), None
        add_gradients(x, ctx.layers.wanted((weight, bias)), dy)
        return dx, None, None, None


@torch.no_grad()
def add_gradients(x: torch.Tensor, params: Sequence[torch.Tensor], dy: torch.Tensor) -> None:
    """Add to the `.grad` of `params`, of a linear layer's weight and bias, what belongs to `x` and `dy`: W."""
    rows = _rows(dy)
    for param in params:
        require_no_sum(param)
        param.grad = plain(param.grad)
        if param.dim() == 1:
            param.grad = rows.sum(0) if param.grad is None else param.grad.add_(rows.sum(0))
        elif param.grad is None:
            param.grad = rows.T @ _rows(x)
        else:
            param.grad.addmm_(rows.T, _rows(x))


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Return `x` as a matrix of rows, its last dimension; rows may be empty."""
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])
