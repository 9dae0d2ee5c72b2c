"""Check a value by a ladder (type, shape, dtype, finite, values) that stops at the first broken rung.

Each function returns nothing, or raises `CheckFailure` with one exact sentence, the result, the expected value and, if
the value shows a known mistake, the mistake's name first. Only exact types pass: a subclass that lies about itself is
not a tensor and not a number.
"""

import cmath
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autograder import show
from autograder.show import OR, an, type_name

from . import advice
from .elements import at, element, first_index, index_of, items
from .equality import agree, alike, first_difference, same, wide

# Sentence that names a mistake -> the mistake's value, or a function that computes it.
Mistakes = Mapping[str, Any] | None

# Error model. A right answer may add in a different order, so the error is measured against the largest value of the
# expected result and grows with the square root of the number of rounded operations: some thousands of them are about
# 150 roundings in float32. Half formats keep a few roundings. In float64 the bound is loose in roundings and still
# far below float32's rounding (6e-8): an answer computed in lower precision is detected.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
FEW = 64  # elements
NUMBER_TOLERANCE = 1e-6  # a Python float may come from float32 data through `.item()`


@dataclass
class CheckFailure(AssertionError):  # noqa: N818 (it is a verdict on an answer, not an error of ours)
    """A check that did not pass: the sentence, and the details that feedback shows with it."""

    message: str
    got: str = ""
    expected: str = ""
    where: str = ""  # the worst element, the tolerance
    why: str = ""
    mistake: str = ""  # the named mistake, if the value reveals it
    share: float = 0.0  # partial credit: share of the check's points

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.mistake, self.message, self.where, self.why)))


class ArgumentChanged(CheckFailure):
    """The student's function changed its argument; the sentence says so."""


def tensor(got: Any, *, name: str, shape: Any = None, dtype: Any = None) -> None:
    """Check that `got` is a finite `torch.Tensor`, with the given `shape` and `dtype`, if any."""
    _is_tensor(got, name)
    if shape is not None:
        _has_shape(got, tuple(shape), name)
    if dtype is not None:
        _has_dtype(got, dtype, name)
    _is_finite(got, name)


def close(
    got: Any, expected: Any, *, name: str, why: str = "", mistakes: Mistakes = None, rtol: Any = None, atol: Any = None
) -> None:
    """Check that `got` equals `expected` up to rounding; `expected` is a tensor or a number.

    The allowed error of an element e is `rtol * |e| + atol`. By default `rtol` comes from the dtype and `atol` is
    `rtol` times the largest expected value (1 if that is zero). A tensor must have the expected shape and dtype;
    a single number may come as a float or as a 0-d tensor. `mistakes` maps a sentence that names a mistake and says
    what to do to the value (or a function that computes the value) that the mistake would give.
    """
    expected_tensor = _as_tensor(expected)
    exact_dtype = type(expected) is torch.Tensor
    if type(got) in (int, float) and expected_tensor.dim() == 0:
        got_tensor = _as_number(got, expected_tensor, name)
    else:
        _is_tensor(got, name, wanted="a torch.Tensor" if exact_dtype else "a number")
        got_tensor = got.detach()
    rtol, atol = _tolerance(expected_tensor, rtol, atol, exact_dtype)
    try:
        _has_shape(got_tensor, tuple(expected_tensor.shape), name)
        if exact_dtype:
            _has_dtype(got_tensor, expected_tensor.dtype, name)
        if expected_tensor.isfinite().all():
            _is_finite(got_tensor, name)
        whole = type(got) is type(expected) is int or _is_exact(expected_tensor)
        _values_agree(got_tensor, expected_tensor, name, rtol, atol, whole)
    except CheckFailure as failure:
        failure.got, failure.expected = show.show(got), show.show(expected)
        failure.why = why
        failure.mistake = _named_mistake(got_tensor, expected_tensor, mistakes or {}, rtol, atol)
        if not failure.mistake and not (exact_dtype and got_tensor.dtype != expected.dtype):
            failure.mistake = advice.of_precision(got_tensor, expected_tensor)
            failure.mistake = failure.mistake or advice.of_first_round(got_tensor, expected_tensor, rtol, atol)
        raise


def equal(got: Any, expected: Any, *, name: str, why: str = "", mistakes: Mistakes = None) -> None:
    """Check that `got` is exactly `expected`: the same types, lengths and values, with no tolerance."""
    if same(got, expected):
        return
    mistake = _either(sentence for sentence, value in (mistakes or {}).items() if same(got, _value(value)))
    index, a, b = first_difference(got, expected)
    path = element(name, index)
    if type(a) is not type(b):
        message = f"{path} is {an(type_name(a))}, expected {an(type_name(b))}."
    elif type(a) in (list, tuple, set, frozenset, dict) and len(a) != len(b):
        message = f"{path} has {items(len(a))}, expected {len(b)}."
        if not mistake and type(a) in (list, tuple) and same(a, b[:1]):
            message = f"{message} {advice.of_length(len(a), len(b))}".rstrip()
    else:
        message = f"{path} is {show.show(a, 80)}, expected {show.show(b, 80).removesuffix('.')}."
    raise CheckFailure(message, show.show(got), show.show(expected), why=why, mistake=mistake)


def unchanged(value: Any, before: Any, *, name: str) -> None:
    """Check that the argument `name` still has the value `before` (a copy made before the call)."""
    if not same(value, before):
        raise ArgumentChanged(
            f"Your function changed its argument {name}. {advice.instead_of_changing(before, name)}",
            got=f"after the call, {name} is {show.show(value)}",
            expected=f"{name} as it was: {show.show(before)}",
        )


def leaves_alone(function: Callable, **tensors: torch.Tensor) -> Any:
    """Call `function` with `tensors`, in order; check that it changes none of them, and return its result."""
    before = {name: value.clone() for name, value in tensors.items()}
    result = function(*tensors.values())
    for name, value in tensors.items():
        unchanged(value, before[name], name=name)
    return result


def that(condition: Any, sentence: str, *, got: Any = None, expected: Any = None, why: str = "") -> None:
    """Check that `condition` holds; `sentence` says what is wrong otherwise. `got` and `expected` are shown
    unchanged."""
    if type(condition) is torch.Tensor and condition.dim() == 0 and condition.dtype == torch.bool:
        condition = condition.item()
    if type(condition) is not bool:
        raise TypeError(f"checks.that needs a bool, not {type_name(condition)}: compare values of exact types first")
    if not condition:
        got, expected = (
            "" if value is None else value if type(value) is str else show.show(value) for value in (got, expected)
        )
        raise CheckFailure(sentence, got, expected, why=why)


def fail(sentence: str, *, got: Any = None, expected: Any = None, why: str = "") -> None:
    """Fail the check with `sentence`."""
    that(False, sentence, got=got, expected=expected, why=why)


# The rungs


def _is_tensor(got, name: str, wanted: str = "a torch.Tensor") -> None:
    if type(got) is torch.Tensor:
        return
    if got is None:
        raise CheckFailure(
            f"{name} is None, expected {wanted}. Does every path of the function end in `return`?", "None", wanted
        )
    more = advice.of_type(type_name(got))
    raise CheckFailure(f"{name} is {an(type_name(got))}, expected {wanted}.{more}", show.show(got), wanted)


def _has_shape(got: torch.Tensor, expected: tuple, name: str) -> None:
    if tuple(got.shape) != expected:
        got_shape, more = show.shape(got), advice.of_shape(tuple(got.shape), expected)
        message = f"{name} has shape {got_shape}, expected {expected}.{more}"
        raise CheckFailure(message, f"shape {got_shape}", f"shape {expected}")


def _has_dtype(got: torch.Tensor, expected: torch.dtype, name: str) -> None:
    if got.dtype != expected:
        is_, wanted, more = show.dtype(got), show.dtype(expected), advice.of_dtype(got.dtype, expected)
        raise CheckFailure(f"{name} has dtype {is_}, expected {wanted}.{more}", is_, wanted)


def _is_finite(got: torch.Tensor, name: str) -> None:
    if not _is_exact(got) and not _is_small_and_finite(got) and (bad := ~wide(got).isfinite()).any():
        index = first_index(bad)
        value = show.number(got[index].item())
        raise CheckFailure(
            f"{element(name, at(index))} is {value}, expected a finite number.", show.show(got), "finite numbers"
        )


def _is_small_and_finite(got: torch.Tensor) -> bool:
    """Whether a tensor has few elements, all of them finite: Python tells it in a tenth of torch's time."""
    return got.numel() <= FEW and all(map(cmath.isfinite, got.flatten().tolist()))


def _is_exact(t: torch.Tensor) -> bool:
    return not (t.is_floating_point() or t.is_complex())


def _values_agree(got, expected, name: str, rtol: float, atol: float, whole: bool = False) -> None:
    """Check the values; of `whole` numbers, which nothing rounds, say by how many they differ."""
    wrong = ~agree(got, expected, rtol, atol)
    if not wrong.any():
        return
    got, expected = wide(got), wide(expected)
    error = (got - expected).abs().nan_to_num(torch.inf, torch.inf, torch.inf)
    index = index_of(error.masked_fill(~wrong, -1.0).argmax().item(), error.shape)
    a, b = _apart(got[index].item(), expected[index].item())
    allowed = rtol * expected[index].abs().item() + atol
    where = _off(error[index].item(), allowed)
    if whole:
        a, b = (show.number(int(value)) for value in (got[index].item(), expected[index].item()))
        where = f"Off by {int(error[index].item()):,}."
    if expected.numel() > 1:
        where += f" {int(wrong.sum())} of {expected.numel()} elements differ; this one most."
    raise CheckFailure(f"{element(name, at(index))} is {a}, expected {b}.", where=where.strip())


# Helpers


def _off(error: float, allowed: float) -> str:
    """Say by how much a number is wrong; nothing if one of the two is infinite, which says enough."""
    if not (math.isfinite(error) and math.isfinite(allowed)):
        return ""
    return f"Off by {error:.3g}; rounding explains {allowed:.2g}."


def _as_tensor(expected) -> torch.Tensor:
    if type(expected) is torch.Tensor:
        return expected.detach()
    return torch.tensor(expected, dtype=torch.complex128 if type(expected) is complex else torch.float64)


def _as_number(got, expected: torch.Tensor, name: str) -> torch.Tensor:
    """Return a plain number in the dtype of `expected`; CheckFailure if that cannot hold it."""
    try:
        number = torch.tensor(got, dtype=expected.dtype)
        lost = not (expected.is_floating_point() or expected.is_complex()) and bool(number != got)
    except (OverflowError, RuntimeError, ValueError):
        lost = True
    if lost:
        got, wanted = show.show(got), show.show(expected.item())
        raise CheckFailure(f"{name} is {got}, expected {wanted.removesuffix('.')}.", got, wanted)
    return number


def _tolerance(expected: torch.Tensor, rtol, atol, is_tensor: bool) -> tuple[float, float]:
    if _is_exact(expected):
        return rtol or 0.0, atol or 0.0
    if rtol is None:
        rtol = TOLERANCE.get(expected.dtype, 0.0) if is_tensor else NUMBER_TOLERANCE
    return rtol, rtol * _scale(expected) if atol is None else atol


def _scale(expected: torch.Tensor) -> float:
    finite = expected[expected.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return largest or 1.0


def _named_mistake(got, expected, mistakes, rtol: float, atol: float) -> str:
    def gives(value) -> bool:
        found = _value(value)
        value = _as_tensor(found)
        is_right = alike(value, expected, rtol, atol)  # for some inputs a mistake is
        same_kind = type(found) is not torch.Tensor or _is_exact(value) == _is_exact(got)
        return same_kind and alike(got, value, rtol, atol) and not is_right

    return _either(sentence for sentence, value in mistakes.items() if gives(value))


def _either(sentences: Iterable[str]) -> str:
    """Join the first two mistakes that give the value: the input may not tell one from the other."""
    return OR.join(itertools.islice(sentences, 2))


def _value(value):
    return value() if callable(value) else value


def _apart(a, b) -> tuple[str, str]:
    """Show two unequal numbers with enough digits to see the difference."""
    if type(a) is not float or type(b) is not float:
        return str(a), str(b)
    texts = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(6, 18))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(a), repr(b)))
