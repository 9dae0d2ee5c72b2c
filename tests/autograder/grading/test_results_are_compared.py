"""Whatever a check asks a student's function for, it judges: with the result of a call changed, it does not pass.

Each check runs on the reference. Then, for each place where it calls a function, one call's result is changed, in place
where the function returns nothing. If the check passes all the same, an answer may do there what it likes. The few
results that are not to be judged are listed in `unjudged.toml`, each with its reason.
"""

import contextlib
import io
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from autograder import exercises
from autograder.authoring import Check, Exercise
from autograder.checks import CheckFailure
from autograder.grading import lazy
from autograder.sessions.errors import StudentError
from autograder.sessions.local import LocalSession
from autograder.sessions.ranks import Ranks

pytestmark = pytest.mark.filterwarnings("ignore")
UNJUDGED = tomllib.loads(Path(__file__).with_name("unjudged.toml").read_text())
SEED = 7
CHECKS = ("autograder/exercises/", "autograder/checks/")
Place = tuple[str, str]  # a function of the student's, and the line of the check that calls it


def changed(leaf: Any) -> Any:
    """Return another number, or a tensor of others of the same form; anything else as it is."""
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, torch.Tensor):
        return other_tensor(leaf.detach())
    if isinstance(leaf, int):
        return leaf + 1
    return leaf * 1.5 + 1 if isinstance(leaf, (float, complex)) else leaf


def other_tensor(right: torch.Tensor) -> torch.Tensor:
    if right.dtype is torch.bool:
        return ~right
    if right.layout is not torch.strided:
        return right
    return (right * 1.5 + 1).to(right.dtype) if right.is_floating_point() or right.is_complex() else right + 1


def with_other_numbers(result: Any) -> Any:
    """Return a result with all its numbers changed."""
    return tree_map(changed, result)


@torch.no_grad()
def change_in_place(value: Any) -> bool:
    """Change the numbers of a tensor, or of the tensors and numbers in a list; return whether there are any."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        value.mul_(1.5).add_(1)
        return True
    if type(value) is list and value and all(isinstance(item, (int, float)) for item in value):
        value[:] = map(changed, value)
        return True
    return type(value) is list and any(list(map(change_in_place, value)))


def place() -> str:
    """Return the line of a check, or of its helper, that called the student's function."""
    frame = sys._getframe(2)
    while frame.f_back and not any(part in frame.f_code.co_filename for part in CHECKS):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class Changing(LocalSession):
    """Changes the result of one call of all, the `number`-th, and notes all calls."""

    def __init__(self, namespace: dict, number: int = -1):
        super().__init__(namespace)
        self.number, self.calls, self.did = number, list[Place](), False

    def is_next(self, name: str) -> bool:
        self.calls.append((name, place()))
        return len(self.calls) - 1 == self.number

    def call_by_name(self, name: str, args: tuple, kwargs: dict) -> Any:
        result = super().call_by_name(name, args, kwargs)
        return self.other(result, args) if self.is_next(name) else result

    def run_ranks(self, name: str, p: int, args_for: Callable[[int], tuple], *rest: Any, **options: Any) -> Ranks:
        run = super().run_ranks(name, p, args_for, *rest, **options)
        return replace(run, results=self.other(run.results, run.arguments)) if self.is_next(name) else run

    def other(self, result: Any, arguments: Any) -> Any:
        """Return another result; where it has no numbers, change the arguments instead."""
        found = with_other_numbers(result)
        self.did = repr(found) != repr(result)
        if not self.did:
            self.did = any(list(map(change_in_place, flat(arguments))))
        return found


def flat(arguments: Any) -> list:
    """Return the arguments of a call, or of all ranks."""
    return [item for args in arguments for item in (args if type(args) is tuple else (args,))]


def passes(exercise: Exercise, check: Check, session: Changing) -> bool:
    """Whether a check passes, with the seed that all runs of it have."""
    session.forbid(exercise.closed, exercise.opened)
    session.start_check(10 * check.seconds)
    rng = torch.Generator().manual_seed(SEED)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            check.function(session.student, rng)
    except (CheckFailure, StudentError):
        return False
    finally:
        session.forbid()
    return True


def some(numbers: list[int]) -> list[int]:
    """Return the first, the middle and the last."""
    return sorted({numbers[0], numbers[len(numbers) // 2], numbers[-1]})


def unjudged(exercise: Exercise, check: Check, namespace: dict) -> Iterator[Place]:
    """Yield the places of a check where a call's result may be anything: it passes with each that was changed."""
    right = Changing(namespace)
    assert passes(exercise, check, right), f"{exercise.id}.{check.name}: the reference fails"
    for where in dict.fromkeys(right.calls):
        numbers = [number for number, call in enumerate(right.calls) if call == where]
        tried = [Changing(namespace, number) for number in some(numbers)]
        if all(passes(exercise, check, session) and session.did for session in tried):
            yield where


def places(slug: str) -> Iterator[str]:
    """Yield a lab's places that no comparison reaches, as `unjudged.toml` names them."""
    solved = lazy.solved(slug)
    for exercise in exercises.load(slug).exercises.values():
        for check in exercise.checks.values():
            for function, line in unjudged(exercise, check, {**solved}):
                yield f"{exercise.name}.{check.name}: {function} ({line})"


def without_lines(places: Iterator[str]) -> set[str]:
    return {found.partition(" (")[0] for found in places}


@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", ["gradient_descent"])
def test_results_of_one_lab_are_compared(slug):
    assert without_lines(places(slug)) == set(UNJUDGED.get(slug, {}))


@pytest.mark.long
@pytest.mark.parametrize("slug", exercises.LABS)
def test_results_are_compared(slug):
    """A place that is not listed is unjudged, or a listed one has been mended."""
    found = list(places(slug))
    print(*found, sep="\n")
    assert without_lines(found) == set(UNJUDGED.get(slug, {}))
