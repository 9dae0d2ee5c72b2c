"""Wrong answers to one exercise; some are the lab's own solution with a few characters changed."""

import re
from collections.abc import Callable
from functools import cache, partial

from autograder.authoring import BANK, WrongAnswer, wrong
from autograder.authors import build

references = cache(build.references)
FIRST = re.compile(r"^(@|def |class )", re.MULTILINE)


def answers_to(exercise: str) -> tuple[Callable, Callable]:
    """Return `wrong` and `slip` for `exercise` ("slug.name"), which need not name it again."""
    return partial(wrong, exercise), partial(slip, exercise)


def without_settings(code: str) -> str:
    """Return a solution without what stands before its first definition: other cells have that."""
    first = FIRST.search(code)
    return code[first.start() :] if first else code


def slip(exercise: str, mistake: str, *changes: str, fails: str | tuple[str, ...], says: str, causes: int = 1) -> None:
    """Put the solution of `exercise` ("slug.name") with `changes` (old, new, old, new, ...) into the bank.

    `fails` are checks; a string has several by spaces. Raises ValueError if the solution lacks what is to change.
    """
    slug, _, name = exercise.partition(".")
    code = without_settings(references(slug)[name])
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if old not in code:
            raise ValueError(f"{exercise}, {mistake}: the solution has no {old!r} to change; mend the slip")
        code = code.replace(old, new)
    failing = tuple(fails.split()) if isinstance(fails, str) else fails
    BANK.append(WrongAnswer(exercise, mistake, failing, says, code, causes))
