"""What an answer holds outside torch's memory is found, wherever it is kept; what a right one holds counts 0."""

import functools

import numpy as np
import pytest
import torch

from autograder.inside.held import Held, watching
from hpcdl.memory import meter

N = 1000
NBYTES = 8 * N
KEPT: dict = {}


class Answer:
    def __init__(self, keep):
        self.rank, self.sizes, self.state = 3, [3, 4, 5], torch.zeros(N)
        self.kept = keep(np.arange(1.0, N + 1))


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


WAYS = {
    "an array": lambda x: x,
    "a view of one": lambda x: x[:1],
    "bytes": lambda x: [x.tobytes()],
    "a list of numbers": lambda x: x.tolist(),
    "a text": lambda x: x.tobytes().hex(),
    "a tensor of an array": torch.from_numpy,
    "a closure": lambda x: lambda: x,
    "a decorated function": lambda x: torch.no_grad()(lambda: x),
    "a partial": lambda x: functools.partial(print, x),
    "a default": lambda x: lambda y=x: y,
    "a slot": Slots,
    "an iterator": lambda x: iter([x]),
    "a generator": lambda x: (number for number in x),
    "a global name": lambda x: KEPT.update(x=x),
    "an attribute of its class": lambda x: setattr(Answer, "x", x),
    "an attribute of a tensor": lambda x: setattr(tensor := torch.zeros(1), "x", x) or tensor,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_outside_torch_counts(way):
    with meter() as memory:
        held = Held(memory, (), Answer)
        held.roots.append(Answer(WAYS[way]))
        assert held.look() >= NBYTES
    KEPT.clear()


def test_a_right_answer_holds_nothing_beside():
    with meter() as memory:
        held = Held(memory, (), Answer)
        held.roots.append(Answer(lambda x: torch.ones(N) * 2))
        assert held.look() == 0


def test_variables_of_running_functions_count():
    def answer(work):
        gathered = np.ones(N)
        work()
        return gathered

    with meter() as memory:
        held = Held(memory, (), answer)
        answer(watching(held, lambda: None))
        assert held.look() == 0
        assert held.take_most() >= NBYTES
        assert held.take_most() == 0
