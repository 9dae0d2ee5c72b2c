"""A line-up of programs that double a number: who is unmasked by which inputs, and what is said."""

import math

import pytest
import torch

from autograder.boundary.protocol import Foreign
from autograder.checks import CheckFailure
from autograder.checks import impostors as catch
from autograder.checks.impostors import LineUp, Suspect


def fails_at_zero(x, times):
    return 2 * x * times * (x / x)


LINE_UP = LineUp(
    "unmask_double",
    truth=lambda x, times: 2 * x * times,
    suspects=(
        Suspect("A", lambda x, times: (x + x) * times),
        Suspect("B", lambda x, times: x * x * times, "squares", "a number that is not 2"),
        Suspect("C", fails_at_zero, "divides by x", "the number 0"),
        Suspect("D", lambda x, times: 2.0 * times * x if abs(x) < 90 else 2 * times * x + 1e-3),
    ),
    fields={"x": catch.number(-100, 100), "times": catch.whole(1, 3)},
    outside=lambda x, times: "x times times is 99" if x * times == 99 else "",
)


def failure(verdict, given) -> CheckFailure:
    with pytest.raises(CheckFailure) as raised:
        verdict(LINE_UP, given)
    return raised.value


def test_inputs_that_unmask_everybody_pass_both():
    catch.spares_the_right(LINE_UP, [(3, 1), (0, 2)])
    catch.unmasks_the_wrong(LINE_UP, ((3, 1), [0, 2]))


def test_each_impostor_earns_its_share_and_the_evidence_is_shown():
    said = failure(catch.unmasks_the_wrong, [(2, 1), (3.0, 1)])
    assert said.share == 1 / 2
    assert said.message.startswith("Your inputs unmask 1 of 2 impostors.")
    assert said.got == "B squares: asked (3., 1), it answers 9., expected 6."
    assert said.why == "Hint: try the number 0."


def test_inputs_that_unmask_no_impostor_earn_nothing():
    said = failure(catch.spares_the_right, [(2, 1)])
    assert "every program gives the right answer for all of them" in said.message


def test_an_error_is_an_answer():
    assert catch.examine(LINE_UP, [(0, 1)]).unmasked == {"C": "asked (0, 1), it raises a ZeroDivisionError"}


def test_input_that_accuses_the_innocent_is_refused():
    assert catch.examine(LINE_UP, [(95, 1)]).unmasked == {}
    said = failure(catch.spares_the_right, [(3, 1), (95, 1), (1, 9)])
    assert "Input 2, (95, 1), accuses the innocent: D is right, and answers 190.001" in said.message
    assert said.why == "This input does not count. The same holds for 1 more of your inputs."


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ((math.nan, 1), "x is nan, expected a number from -100 to 100"),
        ((True, 1), "x is True, expected a number"),
        ((10**5000, 1), "x is an int of 16610 bits, expected"),
        ((torch.tensor(1.0), 1), "x is tensor(1., float32), expected"),
        ((1, 4), "times is 4, expected an int from 1 to 3"),
        ((1, 1.0), "times is 1., expected an int"),
        ((33, 3), "x times times is 99"),
        ((1,), "an input is a tuple (x, times) of 2 parts"),
        ({1: 1, 2: 1}, "an input is a tuple (x, times) of 2 parts"),
        (Foreign("Odd"), "an input is a tuple (x, times) of 2 parts"),
    ],
)
def test_input_outside_the_specification_is_not_run(case, rule):
    said = failure(catch.spares_the_right, [(0, 1), case])
    assert said.message.startswith("Input 2, ")
    assert f"is outside the specification: {rule}" in said.message
    assert catch.examine(LINE_UP, [case]).unmasked == {}


@pytest.mark.parametrize("verdict", [catch.spares_the_right, catch.unmasks_the_wrong])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "gives no input"),
        (None, "is None, expected a list of inputs, each a tuple (x, times)."),
        ({}, "is a dict"),
        ("(1, 2)", "is a str"),
        (torch.ones(3, 2), "is a torch.Tensor"),
        (Foreign("Odd"), "is an Odd"),
        ([(1, 1)] * 13, "gives 13 inputs, but at most 12 are allowed"),
    ],
)
def test_what_is_no_list_of_a_few_inputs_is_not_run(verdict, given, says):
    said = failure(verdict, given)
    assert says in said.message
    assert said.share == 0


def test_first_wrong_part_of_a_list_is_named():
    assert catch.same_up_to([1.0, (2.0, [math.inf])], [1.0 + 1e-9, (2.0, [math.inf])], 1e-6)
    assert not catch.same_up_to([1.0], (1.0,), 1e-6)
    assert not catch.same_up_to([1.0], [1.0, 2.0], 1e-6)
    assert not catch.same_up_to(math.nan, 1.0, 1e-6)
    assert catch.evidence([1.0, [2.0, 3.0]], [1.0, [2.0, 4.0]], 1e-6) == "answers 3. at [1][1], expected 4."


@pytest.mark.parametrize("verdict", [catch.spares_the_right, catch.unmasks_the_wrong])
@pytest.mark.parametrize("given", [(3, 1), [3, 1]])
def test_one_input_without_a_list_is_told_its_brackets(verdict, given):
    said = failure(verdict, given)
    assert said.message.endswith("Put brackets around it: return [(3, 1)].")
    verdict(LINE_UP, [(3, 1), (0, 1)])  # as many inputs as an input has parts
