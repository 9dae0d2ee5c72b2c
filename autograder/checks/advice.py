"""Say what to do next, where the type or the precision of a value tells it."""

from typing import Any

import torch

from .equality import alike

FLOAT32 = (
    "Your numbers were rounded to float32, which is not exact enough here: compute with Python's floats (`math`, not "
    "`torch`), or give new tensors dtype=torch.float64."
)
DEFAULT = "New tensors are float32 by default: give them the argument's dtype, as in dtype=x.dtype."

CONTAINERS: dict[type, str] = {dict: "dict", list: "list"}


def instead_of_changing(value: Any, name: str) -> str:
    """Say what to do instead of changing the argument `name`, in code that runs for a value like this one."""
    kind = CONTAINERS.get(type(value))
    if kind and any(type(part) is torch.Tensor for part in (value.values() if kind == "dict" else value)):
        return f"Make a new {kind} of new tensors: {kind}({name}) alone would hold the same ones."
    if kind:
        return f"Work on a copy ({kind}({name})) or make a new one."
    if type(value) is torch.Tensor:
        return f"Work on a copy ({name}.clone()) or make a new value."
    return "Make a new value."


def of_dtype(got: torch.dtype, wanted: torch.dtype) -> str:
    """Say where a float32 comes from, if float64 is wanted."""
    return f" {DEFAULT}" if (got, wanted) == (torch.float32, torch.float64) else ""


def of_precision(got: torch.Tensor, expected: torch.Tensor) -> str:
    """Say that numbers were computed in float32, if they show it: right to its digits, and none has more."""
    if expected.dtype != torch.float64 or not alike(got, expected, rtol=1e-5, atol=1e-12):
        return ""
    return FLOAT32 if _fits(got) and not _fits(expected) else ""


def _fits(x: torch.Tensor) -> bool:
    """Whether all numbers of `x` are numbers of float32."""
    return bool((x.to(torch.float32).to(torch.float64) == x.to(torch.float64)).all())
