"""Nothing gains a point, crashes the batch or stalls it: every attack is one student of one batch."""

import functools
import importlib
import random
import sys
import types
from pathlib import Path

import pytest
import torch

from autograder import checks, exercises, feedback
from autograder.authoring import Lab
from autograder.grading import batch, layouts
from autograder.sessions import remote
from autograder.walls import sandbox

sys.path.insert(0, str(Path(__file__).parent))
MODULES = ("files", "notebooks", "values", "tampering", "resources", "system")
ATTACKS = {
    f"{name}: {title}": attack
    for name in MODULES
    for title, attack in importlib.import_module(f"attacks.{name}").ATTACKS.items()
}
pytestmark = [
    pytest.mark.labs,  # canaries try the walls in the first tier: test_sandbox.py
    pytest.mark.skipif(sandbox.tier() == "weak", reason="this system has no sandbox"),
]


def make_lab() -> Lab:
    lab = Lab("arena", number=0, title="Arena")
    mean = lab.exercise("mean", points=60, minutes=1, forbid=("aten::avg_pool2d", "statistics"))
    count = lab.exercise("count", points=40, minutes=1)

    @mean.check(points=40, seconds=0.5)
    def value(student, rng):
        "The mean of the elements."
        for size in (7, 5):
            x = torch.rand(size, generator=rng) + 1
            expected = x.mean()  # before the call: afterwards x is what the student made of it
            checks.close(student.mean(x), expected, name="mean(x)")

    @mean.check(points=20, needs="value", seconds=0.5)
    def leaves_x_alone(student, rng):
        "x is the same after the call."
        x = torch.rand(7, generator=rng)
        before = x.clone()
        student.mean(x)
        checks.unchanged(x, before, name="x")

    @count.check(points=40, seconds=2.0)
    def items(student, rng):
        "It gives 0, 1, ... n - 1."
        checks.equal(student.count(4), [0, 1, 2, 3], name="count(4)")

    return lab


@pytest.fixture(scope="module")
def arena():
    module = types.ModuleType("autograder.exercises.arena")
    module.lab = make_lab()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exercises, "LABS", ("arena",))
        patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(remote, "CELL_SECONDS", 0.5)
        patch.setattr(sandbox, "Limits", functools.partial(sandbox.Limits, memory=512 << 20))
        yield


@pytest.fixture(scope="module")
def graded(arena, tmp_path_factory):
    """The result of every attack, from one batch of one lane."""
    folder = tmp_path_factory.mktemp("attacks")
    todo = []
    for title, attack in ATTACKS.items():
        path = folder / f"{len(todo):03}.ipynb"
        path.write_bytes(attack.content)
        todo.append(layouts.Submission(title, path))
    shuffled = random.Random(5).sample(todo, len(todo))  # what one leaves behind must not help or hurt another
    return {submission.student: result for submission, result in batch.grade_all(shuffled, b"attacks")}


def test_there_is_an_attack_for_each_class_of_threat():
    assert len(ATTACKS) >= 100


@pytest.mark.parametrize("title", ATTACKS)
def test_an_attack_has_the_score_it_deserves_and_is_told_why(graded, title):
    attack, result = ATTACKS[title], graded[title]
    said = "\n".join([result.summary(), *result.notes, *map(feedback.text, result.exercises)])
    assert result.score == attack.score, said
    assert attack.says in said, said
    assert "check" not in {check.kind for exercise in result.exercises for check in exercise.checks}, said
    assert "<script" not in "".join(feedback.html(exercise, "") for exercise in result.exercises)


def test_no_attack_stalls_the_batch(graded):
    slowest = max(graded, key=lambda title: graded[title].seconds)
    assert graded[slowest].seconds < 20, slowest
    assert len(graded) == len(ATTACKS)


def test_every_result_names_its_isolation(graded):
    assert {result.isolation for result in graded.values() if result.status == "graded"} == {sandbox.words()}
