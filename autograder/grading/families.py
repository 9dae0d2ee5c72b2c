"""Derive which families of operators and packages each exercise opens: the ones that its right answers use.

    python -m autograder.grading.families [SLUG ...]        write their rows in autograder/exercises/families.json

The right answers are the reference's and those in tests/autograder/honest. Each is checked with all families closed,
and a call of one is noted instead of refused.
"""

import ast
import contextlib
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from autograder import exercises
from autograder.authoring import Exercise, Lab, families_opened
from autograder.authors import build
from autograder.inside import families, magics, source
from autograder.inside.forbidden import Guard
from autograder.inside.operators import matching
from autograder.inside.packages import is_closed
from autograder.sessions.local import LocalSession

from . import run, selfcheck
from .seeds import seeds

PATH = Path(exercises.__file__).with_name("families.json")
HONEST = Path(__file__).parents[2] / "tests" / "autograder" / "honest"
CELL = re.compile(r"^# %% (\w+): (.+)\n", re.MULTILINE)


def honest(slug: str) -> list[tuple[str, str, str]]:
    """Return the answers to a lab in other styles: (exercise, style, code)."""
    path = HONEST / f"{slug}.py"
    _, *parts = CELL.split(path.read_text(encoding="utf-8")) if path.exists() else [""]
    return list(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))


def derived(lab: Lab) -> Iterator[tuple[str, list[str]]]:
    """Yield each exercise's id, and the families that its right answers use."""
    solved = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(lab.slug))]
    for name, exercise in lab.exercises.items():
        used: set[str] = set()
        for code in ("", *(code for other, _, code in honest(lab.slug) if other == name)):
            statements, _ = source.needed([*solved, (name, code)], list(exercise.functions))
            used |= used_by(exercise, statements)
        yield exercise.id, sorted(used)


def used_by(exercise: Exercise, statements: list[tuple[str, str]]) -> set[str]:
    """Return the families that one answer uses while its checks run, or whose packages it imports.

    Any package may be imported for pictures: there it is what the answer itself calls that counts.
    """
    namespace: dict = {}
    for label, code in statements:
        exec(compile(code, label, "exec"), namespace)
    used = {family for _, code in statements for name in imported(code) if (family := family_of(name))} - {"packages"}
    before: set[str] | None = None
    while used != before:  # a door may stop an answer before it uses another family: then it is opened, and tried again
        before, session = set(used), LocalSession(namespace)
        with noted(session.worker.guard, used, sorted(before)):
            run.run_exercise(exercise, session, seeds(selfcheck.SECRET, "families"))
    return used


def imported(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def family_of(call: str) -> str:
    """Return the family of an operator or of a module's function; empty if it is in none."""
    if "::" not in call:
        return next((name for name, patterns in families.FAMILIES.items() if is_closed(call, patterns)), "")
    for name, patterns in families.FAMILIES.items():
        if any(found.partition(".")[0] == call for found in matching(patterns, 0)):
            return name
    return ""


@contextlib.contextmanager
def noted(guard: Guard, used: set[str], known: list[str]) -> Iterator[None]:
    """Close all families except the `known` ones to the answers that `guard` watches, and note calls of them instead
    of refusing them."""
    forbid, knock = guard.forbid, guard.knock

    def all_closed(patterns: tuple[str, ...], opened: tuple[str, ...] | None = None) -> None:
        forbid((*patterns, *families.closed(known)) if opened is not None else patterns, opened)

    def note(name: str) -> None:
        family = family_of(name)
        if not family:
            knock(name)
        elif guard.is_up and not guard.is_other():
            used.add(family)

    guard.forbid, guard.knock = all_closed, note  # type: ignore[method-assign]
    try:
        yield
    finally:
        guard.forbid, guard.knock = forbid, knock  # type: ignore[method-assign]


def text(found: dict[str, list[str]]) -> str:
    """Return the content of the file: a line for each exercise, in the order of the course."""
    order = [exercise.id for slug in exercises.LABS for exercise in exercises.load(slug).exercises.values()]
    lines = [f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in order if name in found]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(slugs: list[str]) -> None:
    warnings.simplefilter("ignore")  # an honest answer's warnings are its own
    torch.set_num_threads(1)
    found = dict(families_opened()) if PATH.exists() else {}
    for slug in slugs or exercises.LABS:
        for name, used in derived(exercises.load(slug)):
            found[name] = used
            print(name, *used, flush=True)
        PATH.write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
