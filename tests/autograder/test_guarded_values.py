"""No check's oracle may touch what a student is handed: a guard looks at every value of every call, in every lab.

A tensor that an oracle made a leaf of autograd's graph is one that NumPy refuses; one that it changed in place is no
longer the question that was asked; one that two ranks share is changed by both.
"""

from functools import cache

import pytest
import torch

from autograder import checks, exercises, show
from autograder.authors import build
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.sessions.copies import copied
from autograder.sessions.local import LocalGrader, LocalSession, LocalWorker

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


class GuardedSession(LocalSession):
    """A notebook's session that remembers what each call handed out, as it was when the call was over."""

    def __init__(self, namespace: dict):
        super().__init__(namespace)
        self.grader = GuardedGrader()
        self.worker = self.grader.worker = LocalWorker(namespace, self.grader)
        self.handed, self.found = [], []
        self.grader.found = self.found

    def call_by_name(self, name, args, kwargs):
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


def findings(slug: str) -> dict[str, list[str]]:
    found = {}
    for exercise in exercises.load(slug).exercises.values():
        session = GuardedSession(solved(slug))
        run.run_exercise(exercise, session, seeds(b"", ""))
        assert session.handed, f"{exercise.id} was never called"
        session.look()
        found[exercise.name] = list(dict.fromkeys(session.found))
    return {name: said for name, said in found.items() if said}


@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_no_oracle_touches_what_a_student_is_handed(slug):
    assert findings(slug) == {}
