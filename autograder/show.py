"""Values as short text: small ones exact, big ones summarised, without running the student's code.

Everything shown here has crossed the boundary, so it has a plain, exact type (see `boundary.protocol`).
"""

import math
from fractions import Fraction
from typing import Any

import torch

WIDTH = 220  # characters of one shown value
BITS = 256  # of a number that is shown in full
FEW = 12  # tensor elements or list items shown in full
OR = " Or: "  # between two mistakes that an input cannot tell apart


class Named:
    """A function or object that is shown only by its name."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self):
        raise TypeError("a name, not a function")


def show(value: Any, width: int = WIDTH) -> str:
    """Return `value` as one line of at most `width` characters."""
    text = _show(value, depth=0)
    return text if len(text) <= width else text[: width - 2] + " …"


def type_name(value: Any) -> str:
    """Return the type in a student's words: `torch.Tensor`, `float`, `None`; a foreign object has its own name."""
    if value is None:
        return "None"
    if type(value) is torch.Tensor:
        return "torch.Tensor"
    try:
        return getattr(value, "type_name", type(value).__name__)
    except Exception:  # in a notebook it may be an object of the student's own
        return type(value).__name__


def an(noun: str) -> str:
    """Return the noun with its article: `a float`, `an int`; None needs none."""
    if noun == "None":
        return noun
    return f"{'an' if noun[:1] in 'aeiouAEIOU' else 'a'} {noun}"


def shape(tensor_or_sizes: Any) -> str:
    """Return a shape as Python writes it: `(3, 4)`, `(5,)`, `()`."""
    return str(tuple(getattr(tensor_or_sizes, "shape", tensor_or_sizes)))


def dtype(value: Any) -> str:
    """`float32` for `torch.float32`."""
    return str(getattr(value, "dtype", value)).removeprefix("torch.")


def number(x: Any) -> str:
    """Return a number with six significant digits, recognisable as a float."""
    if type(x) is not float or not math.isfinite(x):
        return str(x)
    text = f"{x:.6g}"
    return text if any(c in text for c in ".e") else text + "."


def _show(value, depth: int) -> str:
    if type(value) is torch.Tensor:
        return _show_tensor(value)
    if type(value) in (list, tuple, set, frozenset):
        return _show_items(value, depth)
    if type(value) is dict:
        pairs = [f"{_show(k, depth + 1)}: {_show(v, depth + 1)}" for k, v in list(value.items())[:FEW]]
        return "{" + ", ".join(pairs + ["…"] * (len(value) > FEW)) + "}"
    if type(value) is float:
        return number(value)
    if type(value) is str:
        return repr(value if len(value) <= WIDTH else value[:WIDTH] + "…")
    if type(value) is int and value.bit_length() > BITS:
        return f"an int of {value.bit_length()} bits"
    if type(value) is Fraction and max(value.numerator.bit_length(), value.denominator.bit_length()) > BITS:
        return f"a fraction of ints of up to {max(value.numerator.bit_length(), value.denominator.bit_length())} bits"
    if type(value) is torch.Generator:
        return "a torch.Generator"
    try:
        return value.__name__ if callable(value) and hasattr(value, "__name__") else str(value)
    except Exception:
        return f"<{type(value).__name__} object>"


BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("{", "}")}


def _show_items(items, depth: int) -> str:
    left, right = BRACKETS[type(items)]
    if depth > 3:
        return f"{left}…{right}"
    shown = [_show(item, depth + 1) for item in list(items)[:FEW]]
    if len(items) > FEW:
        shown.append(f"… {len(items)} in all")
    comma = "," if type(items) is tuple and len(items) == 1 else ""
    return left + ", ".join(shown) + comma + right


def _show_tensor(t: torch.Tensor) -> str:
    t = t.detach()
    if t.numel() <= FEW:
        return f"tensor({_nested(t.tolist())}, {dtype(t)})"
    first = ", ".join(number(x) for x in t.reshape(-1)[:4].tolist())
    text = f"tensor of shape {shape(t)}, {dtype(t)}: [{first}, …]"
    if t.is_complex():
        return text
    values = t.to(torch.float64) if t.is_floating_point() else t.to(torch.int64)  # float8 has no minimum of its own
    return f"{text} from {number(values.min().item())} to {number(values.max().item())}"


def _nested(x) -> str:
    return "[" + ", ".join(map(_nested, x)) + "]" if isinstance(x, list) else number(x)
