"""The interface of the registry's algorithms, and their automatic differentiation."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch

from hpcdl.conv.layout import like_layout
from hpcdl.conv.problem import Pair, Problem, check_bias, in_numbers


class Filters:
    """Filters `w` (K, C / groups, R, S) and their transforms, kept for the next call if `prepared`."""

    def __init__(self, w: torch.Tensor, prepared: bool = False):
        self.w, self.prepared = w, prepared
        self._made: dict[Hashable, Any] = {}

    def made(self, key: Hashable, make: Callable[[torch.Tensor], Any]) -> Any:
        """Return `make(w)`, computed at the first call with this key."""
        if key not in self._made:
            self._made[key] = make(self.w.detach())
        return self._made[key]


def prepare(w: torch.Tensor) -> Filters:
    """Return a copy of the filters that keeps each algorithm's transform: pass it to `conv2d` instead of `w`.

    For inference: a prepared filter does not follow later changes of `w` and gets no gradient.
    """
    return Filters(w.detach().clone(), prepared=True)


def everything(problem: Problem) -> None:
    """Return no limits: it can do every problem."""


@dataclass(frozen=True)
class Implementation:
    """A fast form of an algorithm on one kind of device, without checks and gradients.

    `forward(x, filters, problem) -> y`, `grad_input(dy, filters, problem) -> dx`, `grad_weight(dy, x, problem) -> dw`,
    for tensors of one of `dtypes`. `limits(problem)` says in words what it can do if it cannot do this problem, else
    None.
    """

    forward: Callable[[torch.Tensor, Filters, Problem], torch.Tensor]
    grad_input: Callable[[torch.Tensor, Filters, Problem], torch.Tensor]
    grad_weight: Callable[[torch.Tensor, torch.Tensor, Problem], torch.Tensor]
    limits: Callable[[Problem], str | None] = everything
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Algorithm:
    """One algorithm: the textbook form `plain(x, w, problem) -> y`, and an implementation for each of its `devices`.

    Call it for a checked convolution with derivatives of any order.
    """

    name: str
    plain: Callable[[torch.Tensor, torch.Tensor, Problem], torch.Tensor]
    devices: Mapping[str, Implementation]

    def __call__(
        self,
        x: torch.Tensor,
        w: torch.Tensor | Filters,
        bias: torch.Tensor | None = None,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        """`y (N, K, P, Q)` of `x (N, C, H, W)` and `w (K, C / groups, R, S)`, or `w` prepared; see `hpcdl.conv`."""
        return convolve(self.differentiable, x, w, bias, stride, padding, dilation, groups)

    def limits(self, problem: Problem, device: str = "cpu", dtype: torch.dtype = torch.float32) -> str | None:
        """Say what it can do if it cannot do this problem on such a device; else return None."""
        if device not in self.devices:
            return f"it runs on {' and '.join(self.devices)} (here {device})"
        implementation = self.devices[device]
        if dtype not in implementation.dtypes:
            return f"on {device} it takes {', '.join(map(str, implementation.dtypes))} (here {dtype})"
        return implementation.limits(problem)

    def differentiable(self, x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
        """Return y, with derivatives of any order; raise ValueError for a problem that the algorithm cannot do."""
        if rule := self.limits(problem, x.device.type, x.dtype):
            raise ValueError(f"algorithm is {self.name!r}; {rule}, and this is {problem}")
        if in_transform():
            raise ValueError(
                f"algorithm is {self.name!r}; its kernels cannot run inside vmap, grad and other transforms of "
                'torch.func: give algorithm="auto", which takes torch\'s convolution there'
            )
        return _Forward.apply(x, filters.w, filters, self.devices[x.device.type], problem)

    def interpreted(self) -> "Algorithm":
        """Run its GPU kernels on the CPU, slowly, in Triton's interpreter.

        Raises ValueError if there are no kernels, or if Triton compiles them: set TRITON_INTERPRET=1 before anything
        imports Triton.
        """
        if "cuda" not in self.devices:
            raise ValueError(f"algorithm is {self.name!r}; it has no kernels for GPUs to interpret")
        from hpcdl.kernels.gpu.base import INTERPRETED

        if not INTERPRETED:
            raise ValueError("Triton compiles its kernels here; set TRITON_INTERPRET=1 before anything imports it")
        return replace(self, devices={"cpu": self.devices["cuda"]})


def convolve(
    compute: Callable[[torch.Tensor, Filters, Problem], torch.Tensor],
    x: torch.Tensor,
    w: torch.Tensor | Filters,
    bias: torch.Tensor | None,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> torch.Tensor:
    """Check the arguments of torch's `conv2d`, let `compute` do the problem that they make, and add the bias."""
    filters = w if isinstance(w, Filters) else Filters(w)
    x, padding = in_numbers(x, filters.w, stride, padding, dilation)
    problem = Problem.of(x, filters.w, stride, padding, groups, dilation)
    check_bias(bias, problem, x)
    y = compute(x, filters, problem)
    return y if bias is None else y + bias[:, None, None]


def in_transform() -> bool:
    """Return whether this is a call inside a transform of torch.func, such as vmap, whose tensors have no memory."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def has_triton() -> bool:
    """Whether GPU kernels are available."""
    return find_spec("triton") is not None


# -- derivatives -------------------------------------------------------------------------------------------------------
#
# sum(y dy) is linear in x, in w and in dy. Its derivatives with respect to each are y (by dy), dx (by x) and dw (by w):
# so the derivative of each function uses the other two, and derivatives of any order exist.


class _Forward(torch.autograd.Function):
    """y of x and w."""

    @staticmethod
    def forward(ctx, x, w, filters, implementation, problem):
        ctx.save_for_backward(x, w)  # also w, so that autograd notices changes in between
        ctx.rest = filters, implementation, problem
        y = implementation.forward(x, filters, problem) if problem.N else x.new_zeros(problem.y_shape)
        return like_layout(y, x)

    @staticmethod
    def backward(ctx, dy):
        (x, w), (filters, *how) = ctx.saved_tensors, ctx.rest
        dx = _GradInput.apply(dy, w, filters, *how) if ctx.needs_input_grad[0] else None
        dw = _GradWeight.apply(dy, x, *how) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None, None


class _GradInput(torch.autograd.Function):
    """dx of dy and w."""

    @staticmethod
    def forward(ctx, dy, w, filters, implementation, problem):
        ctx.save_for_backward(dy, w)
        ctx.rest = filters, implementation, problem
        return implementation.grad_input(dy, filters, problem) if problem.N else dy.new_zeros(problem.x_shape)

    @staticmethod
    def backward(ctx, x):
        (dy, w), (filters, *how) = ctx.saved_tensors, ctx.rest
        y = _Forward.apply(x, w, filters, *how) if ctx.needs_input_grad[0] else None
        dw = _GradWeight.apply(dy, x, *how) if ctx.needs_input_grad[1] else None
        return y, dw, None, None, None


class _GradWeight(torch.autograd.Function):
    """dw of dy and x."""

    @staticmethod
    def forward(ctx, dy, x, implementation, problem):
        ctx.save_for_backward(dy, x)
        ctx.rest = implementation, problem
        return implementation.grad_weight(dy, x, problem) if problem.N else dy.new_zeros(problem.w_shape)

    @staticmethod
    def backward(ctx, w):
        (dy, x), how, filters = ctx.saved_tensors, ctx.rest, Filters(w)
        y = _Forward.apply(x, w, filters, *how) if ctx.needs_input_grad[0] else None
        dx = _GradInput.apply(dy, w, filters, *how) if ctx.needs_input_grad[1] else None
        return y, dx, None, None
