"""Calls with tensors that lie in memory in several ways, and whether the result is a view of them."""

from typing import Any

import torch

from autograder import checks
from autograder.checks.ladder import Mistakes

LAYOUTS = {
    "rows": "With x row after row in memory",
    "columns": "With x not contiguous, its first axis the fastest in memory",
    "gaps": "With x not contiguous, in every second cell of a memory",
}
COPIED = (
    "The numbers are right, but copied into a memory of their own. Indexing with numbers and slices, transpose, expand "
    "and unfold give a view of the same memory; lists of indices, repeat, stack, clone and contiguous copy."
)


def called(student: Any, name: str, *args: Any, layout: str = "rows") -> tuple[Any, list[bool]]:
    """What `name(*args)` returns for tensors in that layout, and for each whether the result shares its memory."""
    return student.ranks(name, 1, lambda _: (layout, list(args)), harness="in_memory").results[0]


def in_every_layout(student: Any, name: str, args: tuple, expected: torch.Tensor, mistakes: Mistakes = None) -> None:
    """The function gives `expected`, and views, for its tensors in every layout."""
    for layout, words in LAYOUTS.items():
        got, shares = called(student, name, *args, layout=layout)
        checks.close(got, expected, name=f"{words}: {name}(...)", mistakes=mistakes)
        checks.that(shares[0], f"{words}: {COPIED}", got="a copy", expected="a view of x's memory")
