"""Say what to do next, where the type or the precision of a value tells it."""

from typing import Any

import torch

from .equality import alike, wide

FLOAT32 = (
    "Your numbers were rounded to float32, which is not exact enough here: compute with Python's floats (`math`, not "
    "`torch`), or give new tensors dtype=torch.float64."
)
DEFAULT = "New tensors are float32 by default: give them the argument's dtype, as in dtype=x.dtype."
COMPARED = "A comparison gives True and False: make numbers of them, as torch.where(condition, 1.0, 0.0) does."
COMPLEX = (
    "A negative number to a broken power, such as (-8.0) ** (1 / 3), is complex in Python: take abs() of it first."
)
EMPTY = "It is empty. A slice [a:-b] is empty if b is 0: end it at a + size instead."
LOOP = "If a loop makes them, look where `return` is: inside the loop it ends the first round."

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
    """Say where a float32 comes from, if float64 is wanted, and a bool, if a float is."""
    if got == torch.bool and wanted.is_floating_point:
        return f" {COMPARED}"
    return f" {DEFAULT}" if (got, wanted) == (torch.float32, torch.float64) else ""


def of_type(name: str) -> str:
    """Say what to do with a value of the type `name` where a tensor or a real number is wanted."""
    known = {"numpy.ndarray": "Wrap it: torch.as_tensor(...).", "complex": COMPLEX}
    return f" {known[name]}" if name in known else ""


def of_shape(got: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Say how a tensor without elements comes about, if one with elements is wanted."""
    return f" {EMPTY}" if 0 in got and 0 not in wanted else ""


def of_length(got: int, wanted: int) -> str:
    """Say why a list may have one item where several are wanted."""
    return LOOP if got == 1 < wanted else ""


def of_first_round(got: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> str:
    """Say why the first element (or row) may be right, and all others still 0."""
    if got.shape != expected.shape or got.dim() == 0:
        return ""
    got, expected = wide(got), wide(expected)
    both = zip((got, got.flatten()), (expected, expected.flatten()), strict=True)
    stopped = any(_only_first(a, b, rtol, atol) for a, b in both)
    return f"Only the first is computed here, the others are 0. {LOOP}" if stopped else ""


def _only_first(got: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> bool:
    """Whether only the first row of `got` is computed, and rightly, though none of the `expected` ones is 0."""
    is_there = (expected != 0).reshape(len(expected), -1).any(1)
    return len(got) > 1 and bool(is_there.all() and not got[1:].any()) and alike(got[0], expected[0], rtol, atol)


def of_precision(got: torch.Tensor, expected: torch.Tensor) -> str:
    """Say that numbers were computed in float32, if they show it: right to its digits, and none has more."""
    if expected.dtype != torch.float64 or not alike(got, expected, rtol=1e-5, atol=1e-12):
        return ""
    return FLOAT32 if _fits(got) and not _fits(expected) else ""


def _fits(x: torch.Tensor) -> bool:
    """Whether all numbers of `x` are numbers of float32."""
    return bool((x.to(torch.float32).to(torch.float64) == x.to(torch.float64)).all())
