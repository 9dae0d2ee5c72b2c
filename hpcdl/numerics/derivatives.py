"""Difference quotients: the derivative as a machine can measure it, what limits it, and the step that does best.

The error of a quotient with step h has two parts: truncation grows with h, rounding shrinks with it. Source: Press,
Teukolsky, Vetterling and Flannery, "Numerical Recipes", section 5.7 (Numerical Derivatives).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import torch

from hpcdl.numerics.dual import derivatives

Number = float | torch.Tensor


def forward(f: Callable, x: Number, h: Number):
    """(f(x + h) - f(x)) / h, elementwise: the slope of a secant; its truncation error is of order h."""
    return (f(x + h) - f(x)) / h


def central(f: Callable, x: Number, h: Number):
    """(f(x + h) - f(x - h)) / 2h, elementwise; its truncation error is of order h^2."""
    return (f(x + h) - f(x - h)) / (2 * h)


def gradient(f: Callable, x: torch.Tensor, h: float = 1e-5) -> torch.Tensor:
    """All partial derivatives of a number f(x), by central differences: of the shape of x, 2 evaluations for each.

    Raises TypeError unless x is in float64: of other dtypes' digits, the difference of two values of f leaves none.
    """
    if x.dtype != torch.float64:
        raise TypeError(f"gradient: x is in {x.dtype}, whose digits are too few for differences; give x.double()")
    result = torch.empty(x.numel(), dtype=x.dtype)
    for i in range(x.numel()):
        step = torch.zeros_like(result)
        step[i] = h
        step = step.view(x.shape)
        result[i] = (f(x + step) - f(x - step)) / (2 * h)
    return result.view(x.shape)


@dataclass(frozen=True)
class Rule:
    """A difference quotient and its leading errors: truncation `|f⁽ⁿ⁾| h^order / n!` with n = order + 1, and rounding
    `noise eps (|f| + |x f'|) / h`, since both the values of f and the points x + h and x - h are rounded."""

    quotient: Callable
    order: int
    noise: float  # two values, half an eps each, over the distance of the points in units of h

    def truncation(self, f: Callable, x: float, h: Number):
        return abs(float(derivatives(f, x, self.order + 1)[-1])) / factorial(self.order + 1) * h**self.order

    def rounding(self, f: Callable, x: float, h: Number, dtype: torch.dtype):
        value, slope = (float(d) for d in derivatives(f, torch.tensor(x, dtype=torch.float64)))
        return self.noise * torch.finfo(dtype).eps * (abs(value) + abs(x * slope)) / h

    def best_step(self, f: Callable, x: float, dtype: torch.dtype) -> float:
        """Return the h at which truncation plus rounding is least; infinite where there is no truncation to fear."""
        grows = self.order * self.truncation(f, x, 1.0)
        return (self.rounding(f, x, 1.0, dtype) / grows) ** (1 / (self.order + 1)) if grows else float("inf")


RULES = {"forward": Rule(forward, 1, 1.0), "central": Rule(central, 2, 0.5)}
