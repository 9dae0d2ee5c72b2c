"""Lazy answers, made from signatures, have no points in any lab: no check passes an answer that does no work."""

import pytest

from autograder import checks, exercises
from autograder.authoring import Lab
from autograder.grading import lazy

pytestmark = pytest.mark.filterwarnings("ignore")  # a student's code may warn

REFERENCE = """
def scale(xs: list, comm, by: float = 1.0) -> tuple[list, float]:
    return [by * x for x in xs], by


class Total:
    def __init__(self, comm):
        self.comm = comm

    def add(self, x):
        self.comm.all_reduce(x)
        return x
"""


@pytest.mark.long  # a hundred seconds in sum: `selfcheck` of a lab tries a sample of them
@pytest.mark.parametrize("slug", exercises.LABS)
def test_no_lab_pays_for_nothing(slug):
    assert lazy.problems(slug) == []


def test_a_vacuous_check_is_named(monkeypatch):
    """A bound that nothing passes below, and a check of what is left alone, are found; so is `len` of any value."""
    lab = Lab("vacuous", number=0, title="Vacuous")
    exercise = lab.exercise("scale", points=100, minutes=1)

    @exercise.check(points=50)
    def at_most_three(student, rng):
        checks.that(len(student.scale([1.0, 2.0], None)) <= 3, "There are more than three.")

    @exercise.check(points=50)
    def doubles(student, rng):
        checks.equal(student.scale([1.0, 2.0], None, 2.0), ([2.0, 4.0], 2.0), name="scale")

    monkeypatch.setattr(lazy, "answers", lambda slug: made(("scale",), REFERENCE.replace("comm", "unused")))
    monkeypatch.setattr(lazy.exercises, "load", lambda slug: lab)
    monkeypatch.setattr(lazy, "solved", lambda slug: {})
    own, problem = sorted(lazy.problems("vacuous"))
    assert own.startswith("vacuous.scale: at_most_three fails with an error of its own for an answer that")
    assert problem.startswith("vacuous.scale: at_most_three should not pass")
    assert "and 32 others" in problem


def made(functions: tuple[str, ...], reference: str = REFERENCE) -> list[lazy.LazyAnswer]:
    return [lazy.LazyAnswer("scale", kind, code) for kind, code in lazy.answers_to(reference, functions)]


def test_answers_take_what_is_given():
    """Functions and classes with the reference's names accept any arguments, and differ from each other."""
    answers = made(("scale", "Total"))
    assert len({answer.code for answer in answers}) == len(answers) > 100
    for answer in answers:
        compile(answer.code, answer.kind, "exec")
    echo = next(answer for answer in answers if answer.kind == "returns argument 1, its class keeps its arguments")
    names: dict = {}
    exec(echo.code, names)
    assert names["scale"]([1], "second", by=3) == "second"
    assert names["Total"]("comm").add(1, 2) == 2


def test_own_data_sees_no_others():
    """The answer that works on its own data alone is the reference on one rank."""
    answer = next(answer for answer in made(("scale", "Total")) if answer.kind == lazy.OWN_DATA)
    names: dict = {}
    exec(answer.code, names)

    class Comm:
        rank, size, send = 1, 2, print

    total = names["Total"](Comm())
    assert (total.comm.rank, total.comm.size, total.add(5)) == (0, 1, 5)


def test_a_sample_is_the_same_each_time():
    every = made(("scale",))
    first, second = (lazy.chosen(every, 5, 3) for _ in range(2))
    assert first == second
    assert len(first) == 5
    assert len(lazy.chosen(every, 0, 3)) == len(every)
