"""The lecture's table "Derivative of common functions" (HKUST COMP 4901Q, lecture 12), with c = 3."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

C = 3.0


class FunctionRow(NamedTuple):
    """f and f' as printed, and as functions of a tensor, elementwise; `negative`: the row holds for x < 0, too."""

    printed: str
    slope_printed: str
    f: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    negative: bool = True

    def points(self, n: int = 50) -> Tensor:
        """(n,) float64 from 0.1 to 2; (2n,) with those below zero, where the row holds there."""
        right = torch.linspace(0.1, 2.0, n, dtype=torch.float64)
        return torch.cat((-right.flip(0), right)) if self.negative else right


TABLE = (
    FunctionRow("c", "0", lambda x: C + 0 * x, torch.zeros_like),
    FunctionRow("x", "1", lambda x: 1 * x, torch.ones_like),
    FunctionRow("c x", "c", lambda x: C * x, lambda x: torch.full_like(x, C)),
    FunctionRow("|x|", "|x| / x", torch.abs, lambda x: x.abs() / x),
    FunctionRow("x^c", "c x^(c-1)", lambda x: x**C, lambda x: C * x ** (C - 1)),
    FunctionRow("1 / x", "-1 / x²", lambda x: 1 / x, lambda x: -1 / x**2),
    FunctionRow("1 / x^c", "-c / x^(c+1)", lambda x: x**-C, lambda x: -C / x ** (C + 1)),
    FunctionRow("√x", "1 / (2 √x)", torch.sqrt, lambda x: 1 / (2 * x.sqrt()), negative=False),
    FunctionRow("c^x", "c^x ln c", lambda x: C**x, lambda x: C**x * math.log(C)),
    FunctionRow("e^x", "e^x", torch.exp, torch.exp),
    FunctionRow(
        "log_c x", "1 / (x ln c)", lambda x: x.log() / math.log(C), lambda x: 1 / (x * math.log(C)), negative=False
    ),
    FunctionRow("ln x", "1 / x", torch.log, lambda x: 1 / x, negative=False),
    FunctionRow("ln |x|", "1 / x", lambda x: x.abs().log(), lambda x: 1 / x),
    FunctionRow("x^x", "x^x (1 + ln x)", lambda x: x**x, lambda x: x**x * (1 + x.log()), negative=False),
)
