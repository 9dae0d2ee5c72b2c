"""What an author declares: the source of a wrong answer is its own, also among many of one name."""

import importlib
import inspect
import pkgutil

from autograder import bank
from autograder.authoring import BANK


def test_each_of_many_classes_of_one_name_keeps_its_own_source():
    calculus = importlib.import_module("autograder.bank.calculus")
    duals = [answer for answer in BANK if answer.exercise == "calculus.Dual"]
    assert len(duals) == inspect.getsource(calculus).count("\nclass Dual(Dual):") > 5
    assert len({answer.source for answer in duals}) == len(duals)


def test_a_wrong_answers_source_is_its_definition_without_our_decorator():
    for module in pkgutil.iter_modules(bank.__path__):
        importlib.import_module(f"autograder.bank.{module.name}")
    assert all(answer.source.startswith(("def ", "class ", "@triton.jit\ndef ")) for answer in BANK)
    assert not any("@wrong" in answer.source for answer in BANK)
    for answer in BANK:
        compile(answer.source, answer.mistake, "exec")
