"""What an author declares: each exercise and its bank in modules of one name, each wrong answer with its own source."""

import importlib
import inspect
import pkgutil
import sys

import pytest

from autograder import exercises
from autograder.authoring import BANK
from autograder.grading import selfcheck


def modules(package: str) -> set[str]:
    """The names of the modules in a package, without those of packages in it."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return {module.name for module in found if not module.ispkg}


def homes(slug: str) -> dict[str, str]:
    """The name of each exercise's module, by the exercise's id, in the lab's order."""
    package = f"autograder.exercises.{slug}"
    made = {name: vars(importlib.import_module(f"{package}.{name}")).get("exercise") for name in modules(package)}
    name_of = {id(exercise): name for name, exercise in made.items() if exercise is not None}
    return {exercise.id: name_of.pop(id(exercise)) for exercise in exercises.load(slug).exercises.values()}


@pytest.mark.parametrize("slug", exercises.LABS)
def test_exercise_and_bank_modules_correspond(slug):
    assert set(homes(slug).values()) <= modules(f"autograder.bank.{slug}")


@pytest.mark.parametrize("slug", exercises.LABS)
def test_a_bank_is_whole_and_in_the_order_of_the_exercises(slug):
    answers, ids = selfcheck.bank(slug), list(homes(slug))
    assert [id for id in ids if any(answer.exercise == id for answer in answers)] == ids, "an exercise has no bank"
    assert answers == sorted(answers, key=lambda answer: ids.index(answer.exercise))
    assert all(f"autograder.bank.{slug}.{name}" in sys.modules for name in modules(f"autograder.bank.{slug}"))


def test_each_of_many_classes_of_one_name_keeps_its_own_source():
    dual = importlib.import_module("autograder.bank.calculus.dual")
    duals = [answer for answer in BANK if answer.exercise == "calculus.Dual"]
    assert len(duals) == inspect.getsource(dual).count("\nclass Dual(Dual):") > 5
    assert len({answer.source for answer in duals}) == len(duals)


def test_so_does_a_class_whose_methods_are_static():
    answers = [answer for answer in selfcheck.bank("sharding") if answer.source.startswith("class Checkpointed")]
    assert len({answer.source for answer in answers}) == len(answers) > 5


def test_a_wrong_answers_source_is_its_definition_without_our_decorator():
    answers = [answer for slug in exercises.LABS for answer in selfcheck.bank(slug)]
    assert all(answer.source.startswith(("def ", "class ", "@triton.jit\ndef ")) for answer in answers)
    assert not any("@wrong" in answer.source for answer in answers)
    for answer in answers:
        compile(answer.source, answer.mistake, "exec")
