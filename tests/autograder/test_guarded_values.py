"""Every value that crosses to an answer, and every figure that comes back and decides, in every lab.

No check's oracle may touch what a student is handed: a guard looks at every value of every call. A tensor that an
oracle made a leaf of autograd's graph is one that NumPy refuses; one that it changed in place is no longer the question
that was asked; one that two ranks share is changed by both.

`figures.toml` lists the figures that decide checks: where each is taken, and what a lie about it would take. A check
that reads a figure which is not in it fails here.
"""

import dataclasses
import tomllib
from functools import cache
from pathlib import Path

import pytest
import torch

from autograder import checks, exercises, show
from autograder.authors import build
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.inside.harnesses import HARNESSES
from autograder.sessions.copies import copied
from autograder.sessions.local import LocalGrader, LocalSession, LocalWorker

FIGURES = tomllib.loads((Path(__file__).parent / "figures.toml").read_text(encoding="utf-8"))
TAKE_PARAMETERS = ("broadcast_parameters", "make_buckets")  # a model's, which ask for a gradient
TAKE_WEIGHTS = ("steps", "hooks")  # harnesses that make a network of each rank with the same weights


class Handed:
    """What one call handed out, and what it was then."""

    def __init__(self, name: str, *values):
        self.name, self.values, self.before = name, values, copied(values, {})

    def changes(self) -> list[str]:
        now, then = list(leaves(self.values)), list(leaves(self.before))
        if list(map(type, now)) != list(map(type, then)):
            return [f"{self.name}: a list or dict has other items than it had"]
        changed = [a for a, b in zip(now, then, strict=True) if differs(a, b)]
        return [f"{self.name}: {show.show(value)} was something else" for value in changed]


def leaves(value):
    """What a value is made of, however deep: tensors, numbers, functions."""
    if type(value) in (list, tuple, dict):
        for item in value.values() if type(value) is dict else value:
            yield from leaves(item)
    else:
        yield value


def tensors(value) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(value) if type(leaf) is torch.Tensor]


def differs(now, then) -> bool:
    if type(now) is torch.Tensor:
        return now.requires_grad != then.requires_grad or not checks.same(now, then)
    return now is not then


class GuardedGrader(LocalGrader):
    """Looks at what the student's code passes to a function of the check, too."""

    found: list[str]

    def call_exported(self, number, args, kwargs):
        handed = Handed("an argument that the answer gave to the check's function", args, kwargs)
        try:
            return super().call_exported(number, args, kwargs)
        finally:
            self.found += handed.changes()

    verbs = LocalGrader.verbs | {"yours": call_exported}


class Read:
    """A run on ranks that writes down which of its figures a check reads."""

    def __init__(self, run, harness, figures: set):
        self.__dict__.update(_run=run, _harness=harness, _figures=figures)

    def __getattr__(self, name):
        if name == "results" and self._harness:
            self._figures.add(f"harness.{self._harness}")
        elif not name.startswith("__"):
            self._figures.add(name)
        return getattr(self._run, name)


class GuardedSession(LocalSession):
    """A notebook's session that remembers what each call handed out, as it was when the call was over."""

    def __init__(self, namespace: dict):
        super().__init__(namespace)
        self.figures: dict[str, set[str]] = {}  # by check, those that it read
        self.check = ""
        self.grader = GuardedGrader()
        self.worker = self.grader.worker = LocalWorker(namespace, self.grader)
        self.handed, self.found = [], []
        self.grader.found = self.found

    def run_ranks(self, name, p, args_for, kwargs=None, *, harness=None, **machine):
        found = super().run_ranks(name, p, args_for, kwargs, harness=harness, **machine)
        return Read(found, harness, self.figures.setdefault(self.check, set()))

    def timed(self, target, args, kwargs, objects):
        if target[0] == "count":
            self.figures.setdefault(self.check, set()).add("operations")
        return super().timed(target, args, kwargs, objects)

    def call_by_name(self, name, args, kwargs):
        self.figures.setdefault(self.check, set()).add("value")
        self.look()
        self.ask_no_gradient(name, args, kwargs)
        try:
            return super().call_by_name(name, args, kwargs)
        finally:
            self.handed.append(Handed(name, args, kwargs))

    def simulate(self, call):
        self.look()
        self.ask_no_gradient(call.name, call.arguments, call.kwargs)
        weights = slice(1, 2) if call.harness in TAKE_WEIGHTS else slice(0)
        own = [[arg for arg in args if not any(arg is given for given in args[weights])] for args in call.arguments]
        memories = [{x.untyped_storage().data_ptr() for x in tensors(args) if x.numel()} for args in own]
        if sum(map(len, memories)) > len(set().union(*memories)):
            self.found.append(f"{call.name}: two ranks are handed one tensor")
        try:
            return super().simulate(call)
        finally:
            self.handed.append(Handed(call.name, *call.arguments, call.kwargs))

    def ask_no_gradient(self, name, *values) -> None:
        asking = [tuple(x.shape) for x in tensors(values) if x.requires_grad and name not in TAKE_PARAMETERS]
        self.found += [f"{name}: a tensor of shape {shape} asks for a gradient" for shape in asking]

    def look(self) -> None:
        """Note what was changed since it was handed out."""
        for handed in self.handed:
            self.found += handed.changes()
        self.handed = []


@cache
def solved(slug: str) -> dict:
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    namespace: dict = {}
    for label, code in source.needed(cells, exercises.load(slug).functions)[0]:
        exec(compile(code, label, "exec"), namespace)
    return namespace


def noted(exercise, session: GuardedSession):
    """The exercise with checks that tell the session which of them runs."""
    copy = dataclasses.replace(exercise)
    copy.lab = exercise.lab
    for name, check in exercise.checks.items():

        def function(student, rng, name=name, check=check):
            session.check = name
            check.function(student, rng)

        copy.checks[name] = dataclasses.replace(check, function=function)
    return copy


@cache
def sessions(slug: str) -> dict[str, GuardedSession]:
    """A session of each exercise, after the reference has answered it."""
    found = {}
    for exercise in exercises.load(slug).exercises.values():
        session = GuardedSession(solved(slug))
        run.run_exercise(noted(exercise, session), session, seeds(b"", ""))
        assert session.handed, f"{exercise.id} was never called"
        session.look()
        found[exercise.name] = session
    return found


@pytest.mark.each_lab("gradient_descent", turn=(0, 3))
@pytest.mark.parametrize("slug", exercises.LABS)
def test_no_oracle_touches_what_a_student_is_handed(slug):
    found = {name: list(dict.fromkeys(session.found)) for name, session in sessions(slug).items()}
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.each_lab("gradient_descent", turn=(0, 3))
@pytest.mark.parametrize("slug", exercises.LABS)
def test_every_figure_is_in_the_inventory(slug):
    unknown = [
        f"{slug}.{name}.{check} reads {figure}"
        for name, session in sessions(slug).items()
        for check, figures in session.figures.items()
        for figure in sorted(figures)
        if not is_listed(figure, f"{slug}.{name}")
    ]
    assert unknown == [], "say in figures.toml where it is taken, and what a lie about it would take"


def is_listed(figure: str, exercise: str) -> bool:
    """Whether the inventory has a figure, and, if it is a harness's word, for this exercise."""
    if not figure.startswith("harness."):
        return figure in FIGURES
    entry = FIGURES["harness"].get(figure.partition(".")[2], {"exercises": []})
    return exercise in entry["exercises"] or f"{exercise.partition('.')[0]}.*" in entry["exercises"]


def test_every_row_of_the_inventory_is_complete():
    harnesses = FIGURES["harness"]
    assert set(harnesses) == set(HARNESSES)
    assert all(set(row) == {"exercises", "believed", "bound"} for row in harnesses.values())
    assert all(set(row) == {"taken", "lie"} for name, row in FIGURES.items() if name != "harness")
    names = {f"{slug}.{name}" for slug in exercises.LABS for name in (*exercises.load(slug).exercises, "*")}
    assert {name for row in harnesses.values() for name in row["exercises"]} <= names
