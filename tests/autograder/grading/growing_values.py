"""Run a lab's checks on answers that grow, in a process whose memory is bounded; print what a check did with them.

    MALLOC_ARENA_MAX=1 python growing_values.py SLUG SAMPLE SEED

A student's values cross the boundary within its limits, but what a check makes of them runs in the grader, without the
student's limits on memory and time. So no check takes much more memory than the value itself, or loops as often as a
value says: an int as large as ints come, a fraction, many items, shared lists, tensors that broadcast.
"""

import contextlib
import gc
import resource
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import test_odd_values
import torch

from autograder.exercises import __file__ as exercises_file

ROOT = Path(exercises_file).parents[1]
OURS = tuple(str(ROOT / part) for part in ("exercises", "checks", "show.py"))
MANY = 1 << 22  # elements of a tensor
ITEMS = 10_000  # of a list
MOST_LINES = 1_000_000  # of checks, for one call: some loops over all items, and no loop in a loop
ROOM = 768 << 20  # bytes that a check may take


class TooManyLinesError(Exception):
    """A check loops over a value again and again, or as often as a number says."""


def doubled(kind: Callable[[list], Any], times: int) -> Any:
    """Return 2^times numbers, in lists or tuples of two."""
    value: Any = 1.5
    for _ in range(times):
        value = kind([value, value])
    return value


def nested(depth: int) -> Any:
    value: Any = 1.5
    for _ in range(depth):
        value = [value]
    return value


GROWING: dict[str, Callable[[], Any]] = {
    "an int of 16,000 bits": lambda: 3**10_000,
    "a billion": lambda: 10**9,
    "minus a billion": lambda: -(10**9),
    "a billion as a float": lambda: 1e9,
    "a fraction of 16,000 bits": lambda: Fraction(3**10_000, 7**5_700),
    "a long word": lambda: "9" * 1_000_000,
    "many ints": lambda: list(range(ITEMS)),
    "many pairs": lambda: [(i, i) for i in range(ITEMS)],
    "a list doubled": lambda: doubled(list, 12),
    "a tuple doubled": lambda: doubled(tuple, 12),
    "lists in lists": lambda: nested(30),
    "many lists": lambda: [[i] for i in range(ITEMS)],
}
for _shape in ((MANY, 1), (1, MANY), (MANY,)):
    for _dtype in (torch.float32, torch.float64, torch.int64):
        _name = f"a tensor of shape {_shape}, {str(_dtype).removeprefix('torch.')}"
        GROWING[_name] = lambda shape=_shape, dtype=_dtype: torch.ones(shape, dtype=dtype)


def all_leaves(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that changes each tensor and number of a value, in its lists, tuples and dicts."""

    def changed(right: Any) -> Any:
        if type(right) in (list, tuple):
            return type(right)(map(changed, right))
        return {key: changed(value) for key, value in right.items()} if type(right) is dict else change(right)

    return changed


def repeated(right: Any) -> Any:
    """Return a tensor's rows again and again, or an item of a list."""
    if isinstance(right, torch.Tensor) and right.dim() and right.numel():
        times = MANY // right.numel() + 1
        return right.detach().repeat(times, *[1] * (right.dim() - 1))
    return right


def numbered(right: Any) -> Any:
    """Return 0, 1, 2, ... as a tensor of the dtype and rank of `right`."""
    if isinstance(right, torch.Tensor) and right.dim():
        return torch.arange(ITEMS).to(right.dtype).reshape(-1, *[1] * (right.dim() - 1))
    return right


def again(right: Any) -> Any:
    """Return the items of a list or tuple again and again."""
    return right * (ITEMS // len(right)) if type(right) in (list, tuple, str) and right else right


def exact(right: Any) -> Any:
    """Return a long fraction for a number, each with another denominator."""
    is_number = type(right) in (int, float, Fraction)
    return Fraction(3**10_000, 2 * hash(right) % 1000 * 2**15_000 + 7**5_700) if is_number else right


def long_int(right: Any) -> Any:
    """Return an int as long as ints cross the boundary, for a number."""
    return GROWING["an int of 16,000 bits"]() if type(right) in (int, float, Fraction) else right


def items_again(right: Any) -> Any:
    """Return a list whose items have their own items again and again."""
    return type(right)(map(again, right)) if type(right) in (list, tuple) else right


CHANGES: test_odd_values.Changes = {
    f"{what} for {place}": lambda right, put=put, grown=grown: put(right, grown())
    for place, put in test_odd_values.PLACES.items()
    for what, grown in GROWING.items()
}
CHANGES |= {f"{change.__name__} in all places": all_leaves(change) for change in (repeated, numbered, exact, long_int)}
CHANGES |= {"again and again": again, "its items again and again": items_again}


@contextlib.contextmanager
def few_lines() -> Iterator[None]:
    """Raise TooManyLinesError in a check that runs more than MOST_LINES lines."""
    left = MOST_LINES

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            left = MOST_LINES
            raise TooManyLinesError(f"more than {MOST_LINES:,} lines run")
        return line

    def call(frame: FrameType, event: str, arg: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(OURS) else None

    gc.collect()  # what the last check's errors hold
    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


def bound_memory() -> None:
    """Let this process take ROOM more bytes than it has now."""
    most = psutil.Process().memory_info().vms + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(slug: str, sample: str, seed: str, only: str = "") -> None:
    """Print a line for each error of a check's own."""
    test_odd_values.lazy.solved(slug)  # imports what the lab's answers need
    bound_memory()
    for error in test_odd_values.own_errors(slug, int(sample), int(seed), only, CHANGES, few_lines):
        print(error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
