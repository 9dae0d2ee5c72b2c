"""No check of labs 01 to 08 has points for answers that could be learnt by heart: what it hands over is drawn.

A check with the same inputs each time may follow one whose inputs differ: who learnt its answers fails there.
"""

import ast
import contextlib
import inspect
import io
import math
import textwrap
from functools import cache

import pytest
import torch

from autograder import checks, exercises
from autograder.authors import build
from autograder.inside import magics, source
from autograder.sessions.local import LocalSession

EVERY = tuple(exercises.LABS)
LABS = EVERY[1:9]
pytestmark = pytest.mark.filterwarnings("ignore")
CASES = [
    pytest.param(slug, name, id=f"{slug}-{name}")
    for slug in LABS
    for name in exercises.load(slug).exercises
    if not name.startswith("unmask_")  # there the inputs are the answer
]


@cache
def solved(slug: str) -> list[tuple[str, str]]:
    return [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]


class Enough(BaseException):  # (no answer catches it)
    """The check has handed over as much as was asked for."""


class Recorded(LocalSession):
    """Keeps what crosses to the student's code: arguments, and replies of a check's own functions; `most` of them."""

    def __init__(self, namespace: dict, most: float):
        super().__init__(namespace)
        self.handed: list = []
        self.most = most
        serve, ask = self.worker.serve, self.worker.ask
        self.worker.serve = lambda frame: serve(self.kept(frame, 4))  # behind these are seconds, and a mark
        self.worker.ask = lambda frame: self.kept(ask(frame), 2)

    def keep(self, what) -> None:
        self.handed.append(what)
        if len(self.handed) >= self.most:
            raise Enough

    def kept(self, frame, parts: int):
        self.keep((repr(frame.header[:parts]), [bytes(data) for data in frame.buffers]))
        return frame

    def simulate(self, call):
        self.keep((call.name, call.p, shown(call.arguments), shown(call.kwargs)))
        return super().simulate(call)


def shown(value) -> str:
    """Every number of a tensor, and of what holds tensors."""
    if isinstance(value, torch.Tensor):
        return repr(value.detach().tolist())
    if isinstance(value, dict):
        return shown(list(value.items()))
    return repr([shown(item) for item in value] if isinstance(value, (list, tuple)) else value)


def handed(check, exercise, namespace: dict, seed: int, most: float = math.inf) -> list:
    session = Recorded(namespace, most)
    session.forbid(exercise.closed, exercise.opened)
    session.start_check(check.seconds)
    try:
        check.function(session.student, torch.Generator().manual_seed(seed))
    except (Enough, checks.CheckFailure):  # one that measures time may fail in a crowd
        pass
    finally:
        session.forbid()
    return session.handed


def is_the_same(check, exercise, namespace: dict) -> bool:
    """Whether two seeds hand over the same; the first thing tells in most checks, and costs least."""
    return all(
        handed(check, exercise, namespace, 1, most) == handed(check, exercise, namespace, 2, most)
        for most in (1, math.inf)
    )


def not_drawn(exercise, namespace: dict) -> list[str]:
    """Return the checks whose inputs do not differ, nor those of a check that they need. Each check runs once."""

    @cache
    def is_drawn(name: str) -> bool:
        check = exercise.checks[name]
        return any(map(is_drawn, check.needs)) or not is_the_same(check, exercise, namespace)

    return [name for name in exercise.checks if not is_drawn(name)]


@pytest.mark.each_lab("gradient_descent", turn=(0, 2))
@pytest.mark.parametrize(("slug", "name"), CASES)
def test_inputs_are_drawn(slug, name):
    exercise, namespace = exercises.load(slug).exercises[name], {}
    with contextlib.redirect_stdout(io.StringIO()):
        for label, statement in source.needed(solved(slug), list(exercise.functions))[0]:
            exec(compile(statement, label, "exec"), namespace)
    learnt = not_drawn(exercise, namespace)
    assert not learnt, "draw a part of their inputs from rng, or let them need a check that does"


FIXED = {"convolution.winograd_matrices.four_products_for_two_outputs"}  # the matrices that every text prints


def draws(check) -> bool:
    """Whether the check's function uses its generator."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(check.function))).body
    return any(isinstance(node, ast.Name) and node.id == "rng" for node in ast.walk(function))


def test_checks_of_all_labs_draw_or_need_one_that_does():
    fixed = set[str]()
    for exercise in (exercise for slug in EVERY for exercise in exercises.load(slug).exercises.values()):
        drawing = set[str]()
        for name, check in exercise.checks.items():  # those that it needs come first
            drawing |= {name} if draws(check) or drawing & set(check.needs) else set()
        fixed |= {f"{exercise.id}.{name}" for name in exercise.checks.keys() - drawing}
    assert {name for name in fixed if ".unmask_" not in name} == FIXED
