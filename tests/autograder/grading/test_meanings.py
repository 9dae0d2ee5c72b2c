"""Usual errors of Python and torch have a next step in every exercise, and the exercise's own sentence comes first."""

import math

import pytest
import torch

from autograder.authoring import Exercise
from autograder.grading.meanings import MEANINGS, in_general
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession
from hpcdl.comm import simulate

ONES = torch.ones(2, 3)
KINDS = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)


def _two(values):
    a, b = values
    return a, b


ERRORS = {
    "range": lambda: range(6 / 2),
    "zeros": lambda: ONES.new_zeros(2, 6 / 2),
    "slice": lambda: [1, 2, 3][: 4 / 2],
    "index": lambda: list(ONES)[4 / 2],
    "in place": lambda: [].append(1) + ONES,
    "no return": lambda: ONES * None,
    "no gradient": lambda: None.norm(),
    "math": lambda: math.exp(ONES),
    "number": lambda: float(ONES),
    "item": lambda: ONES.item(),
    "if": lambda: 1 if ONES > 0 else 2,
    "product": lambda: ONES @ ONES,
    "vector": lambda: ONES @ torch.ones(2),
    "sum": lambda: ONES + torch.ones(2),
    "empty slice": lambda: torch.ones(2, 2)[0:-0] + torch.ones(2, 2),
    "write to an empty slice": lambda: torch.ones(2, 2)[0:-0].copy_(torch.ones(2, 2)),
    "column": lambda: torch.cat([ONES, ONES[:, 1]], dim=1),
    "stack": lambda: torch.stack([ONES, ONES[:, 1:2]]),
    "rows": lambda: torch.cat([ONES, ONES[:, 1:2]]),
    "dtypes": lambda: ONES @ torch.ones(3, dtype=torch.float64),
    "gradient of a number": lambda: torch.tensor(ONES.sum().item()).backward(),
    "parameter": lambda: torch.ones(2, requires_grad=True).sub_(1.0),
    "part of a parameter": lambda: torch.ones(2, requires_grad=True)[:1].sub_(1.0),
    "transposed": lambda: ONES.T.view(6),
    "shape": lambda: ONES.view(4, 2),
    "dimension": lambda: ONES[0].sum(1),
    "second index": lambda: ONES[0][0, 1],
    "past the list": lambda: [1, 2][2],
    "past the tensor": lambda: ONES[2],
    "two values": lambda: _two((1, 2, 3)),
    "two of one": lambda: _two(ONES[:1]),
    "index of floats": lambda: ONES[torch.ones(2)],
    "no such rank": lambda: simulate(lambda comm: comm.send(ONES, comm.rank + 1), 2),
    "half a rank": lambda: simulate(lambda comm: comm.send(ONES, (comm.rank + 1) / 2), 2),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_a_next_step(name):
    with pytest.raises(KINDS) as raised:
        ERRORS[name]()
    assert in_general(str(raised.value))


def test_every_sentence_is_reached():
    said = set()
    for error in ERRORS.values():
        with pytest.raises(KINDS) as raised:
            error()
        said.add(in_general(str(raised.value)))
    assert said == set(MEANINGS.values())


@pytest.mark.parametrize("known", [True, False])
def test_the_exercise_knows_best(known):
    exercise = Exercise("f", points=1, minutes=1, meanings={"NoneType": "f has no return."} if known else {})

    @exercise.check(points=1)
    def adds(student, rng):
        "It adds."
        student.f(ONES)

    exercise.lab = type("Lab", (), {"slug": "lab", "used_by_reference": {}})()
    session = LocalSession({"f": lambda x: x + None})
    (check,) = run_exercise(exercise, session, seeds(b"notebook", "")).checks
    assert check.mistake == ("f has no return." if known else "")
    assert bool(check.why) != known
