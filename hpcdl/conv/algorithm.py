"""What every algorithm of the registry is, and how it takes part in automatic differentiation."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.autograd.function import once_differentiable

from hpcdl.conv.layout import like_layout
from hpcdl.conv.problem import Problem


class Filters:
    """Filters `w` (K, C / groups, R, S) and what algorithms have made of them, kept for the next call."""

    def __init__(self, w: torch.Tensor):
        self.w, self._made = w, {}

    def made(self, key, make: Callable[[torch.Tensor], object]):
        """`make(w)`, computed at the first call with this key."""
        if key not in self._made:
            self._made[key] = make(self.w.detach())
        return self._made[key]


def prepare(w: torch.Tensor) -> Filters:
    """A copy of the filters that keeps each algorithm's transform of them: give it to `conv2d` in place of `w`.

    For inference: a prepared filter does not follow later changes of `w` and gets no gradient.
    """
    return Filters(w.detach().clone())


def everything(problem: Problem) -> None:
    """No limits: the algorithm can do every problem."""


@dataclass(frozen=True)
class Algorithm:
    """One algorithm: `plain` as in the book, `forward` and both gradients as fast as we can.

    `plain(x, w, problem) -> y`, `forward(x, filters, problem) -> y`, `grad_input(dy, filters, problem) -> dx`,
    `grad_weight(dy, x, problem) -> dw`; `limits(problem)` says in words what the algorithm can do where it cannot do
    this problem, else None. Call the algorithm itself for a checked, differentiable convolution.
    """

    name: str
    plain: Callable[[torch.Tensor, torch.Tensor, Problem], torch.Tensor]
    forward: Callable[[torch.Tensor, Filters, Problem], torch.Tensor]
    grad_input: Callable[[torch.Tensor, Filters, Problem], torch.Tensor]
    grad_weight: Callable[[torch.Tensor, torch.Tensor, Problem], torch.Tensor]
    limits: Callable[[Problem], str | None] = everything

    def __call__(self, x, w, stride: int = 1, padding: int = 0, groups: int = 1) -> torch.Tensor:
        """`y (N, K, P, Q)` of `x (N, C, H, W)` and `w (K, C / groups, R, S)`, or `w` prepared; see `hpcdl.conv`."""
        filters = w if isinstance(w, Filters) else Filters(w)
        problem = Problem.of(x, filters.w, stride, padding, groups)
        if rule := self.limits(problem):
            raise ValueError(f"algorithm is {self.name!r}; {rule}, and this is {problem}")
        return _Convolution.apply(x, filters.w, filters, self, problem)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, filters, algorithm, problem):
        ctx.save_for_backward(x, w)
        ctx.filters, ctx.algorithm, ctx.problem = filters, algorithm, problem
        y = algorithm.forward(x, filters, problem) if problem.N else x.new_zeros(problem.y_shape)
        return like_layout(y, x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, _ = ctx.saved_tensors  # w is saved so that autograd notices when it was changed in between
        algorithm, problem = ctx.algorithm, ctx.problem
        if not problem.N:
            return torch.zeros_like(x), x.new_zeros(problem.w_shape), None, None, None
        dx = algorithm.grad_input(dy, ctx.filters, problem) if ctx.needs_input_grad[0] else None
        dw = algorithm.grad_weight(dy, x, problem) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None, None
