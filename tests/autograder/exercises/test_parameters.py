"""An answer that ignores one of its parameters, and takes the number that checks hand over most often, loses points."""

import contextlib
import functools
import inspect
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.sessions.local import LocalSession

pytestmark = pytest.mark.filterwarnings("ignore")
IGNORED = {  # answers may ignore these
    "accumulated(passes)": "a step's mean is the same in any number of passes",
    "one_weird_trick(p)": "all plans have the same factor (p - 1) / p",
    "design(f)": "one order is good whatever F, B and W take",
    "design(b)": "one order is good whatever F, B and W take",
    "design(w)": "one order is good whatever F, B and W take",
}
RUNS = 4  # with other numbers each: a value that is drawn once in a run may be the frequent one
PLAIN = (int, float, bool, str, type(None))
NOT_THEIRS = ("self", "comm", "rank")
CASES = [
    pytest.param(slug, name, id=f"{slug}-{name}")
    for slug in exercises.LABS
    for name, exercise in exercises.load(slug).exercises.items()
    if not name.startswith("unmask_") and "_kernel" not in name  # with a wrong size a kernel writes anywhere
]
Change = Callable[[str, dict], None]  # receives a function's name and its arguments


def answers(slug: str, exercise, change: Change) -> dict:
    """The names of the reference's answer, whose functions let `change` look at their arguments, and alter them."""
    namespace: dict = {"__name__": "answers"}
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    for label, statement in source.needed(cells, list(exercise.functions))[0]:
        exec(compile(statement, label, "exec"), namespace)
    for name in set(exercise.functions) - set(exercise.given):
        part = namespace[name]
        if part.__module__ != namespace["__name__"]:  # a class of the library, which all share
            continue
        if isinstance(part, type):
            for key, method in functions_in(part):
                setattr(part, key, changing(method, f"{name}.{key}", change))
        elif inspect.isfunction(part):
            namespace[name] = changing(part, name, change)
    return namespace


def functions_in(part: type) -> Iterator[tuple[str, Any]]:
    return ((key, method) for key, method in list(vars(part).items()) if inspect.isfunction(method))


def changing(function: Callable, name: str, change: Change) -> Callable:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        with contextlib.suppress(TypeError):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            change(name, bound.arguments)
            args, kwargs = bound.args, bound.kwargs
        return function(*args, **kwargs)

    return call


def points(slug: str, exercise, change: Change, seed: int = 0) -> list[float]:
    """The points of each check."""
    session = LocalSession(answers(slug, exercise, change))
    with contextlib.redirect_stdout(io.StringIO()):
        result = run_exercise(exercise, session, seeds(b"parameters", f"{slug} {seed}"))
    session.forbid()
    return [check.points for check in result.checks]


def is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (type(value) is tuple and all(map(is_plain, value)))


def handed(slug: str, exercise) -> tuple[list[float], dict[tuple[str, str], Any]]:
    """The reference's points, and the most frequent value of each parameter that always is a number, a text or None."""
    seen: dict[tuple[str, str], Counter] = defaultdict(Counter)
    other = set()

    def look(function: str, arguments: dict) -> None:
        for name, value in arguments.items():
            if name not in NOT_THEIRS and is_plain(value):
                seen[function, name][value] += 1
            else:
                other.add((function, name))

    full = points(slug, exercise, look)
    return full, {key: values.most_common(1)[0][0] for key, values in seen.items() if key not in other}


def ignoring(key: tuple[str, str], value: Any) -> Change:
    function, parameter = key

    def change(name: str, arguments: dict) -> None:
        if name == function:
            arguments[parameter] = value

    return change


@pytest.mark.each_lab("gradient_descent", turn=(0, 6))
@pytest.mark.parametrize(("slug", "name"), CASES)
def test_who_ignores_a_parameter_loses_points(slug, name):
    exercise = exercises.load(slug).exercises[name]
    full, constants = handed(slug, exercise)
    unasked = {
        f"{function}({parameter})": value
        for (function, parameter), value in constants.items()
        if f"{function}({parameter})" not in IGNORED
        and not any(
            lost(full, points(slug, exercise, ignoring((function, parameter), value), seed)) for seed in range(RUNS)
        )
    }
    assert not unasked, "hand over other values, too, and let the answer depend on them"


def lost(before: list[float], now: list[float]) -> bool:
    return any(there < here for here, there in zip(before, now, strict=True))
