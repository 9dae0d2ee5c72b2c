"""The tape: torch's autograd in float64 is the oracle, on expressions that Hypothesis makes up."""

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.nn.value import Value, ancestors, backward

NUMBERS = st.floats(0.3, 1.5)
UNARY = {
    "neg": lambda x: -x,
    "exp": lambda x: (x * 0.1).exp(),
    "log": lambda x: (x**2 + 1.5).log(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: x.relu(),
    "square": lambda x: x**2,
    "constants": lambda x: 2 - (1 + 3 * x) / 4 + 1 / (x**2 + 1),
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (y**2 + 1),
}


@st.composite
def programs(draw):
    """Instructions over a growing list of values: nodes are reused at random."""
    lines, known = [], 3
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from([*UNARY, *BINARY]))
        lines.append((name, [draw(st.integers(0, known - 1)) for _ in range(2 if name in BINARY else 1)]))
        known += 1
    return lines


def run(program, inputs):
    values = list(inputs)
    for name, operands in program:
        values.append((BINARY.get(name) or UNARY[name])(*[values[i] for i in operands]))
    return values[-1]


@given(programs(), st.lists(NUMBERS, min_size=3, max_size=3))
@settings(max_examples=150, deadline=None)
def test_gradients_of_any_program_equal_those_of_torch(program, numbers):
    tape = [Value(x) for x in numbers]
    result = run(program, tape)
    backward(result)
    oracle = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in numbers]
    expected = run(program, oracle)
    grads = torch.autograd.grad(expected, oracle, allow_unused=True)
    assert result.data == pytest.approx(expected.item(), rel=1e-12, abs=1e-12)
    for x, grad in zip(tape, grads, strict=True):
        assert x.grad == pytest.approx(0.0 if grad is None else grad.item(), rel=1e-9, abs=1e-9)


def test_a_second_sweep_starts_from_zero():
    x = Value(3.0)
    y = x * x + x
    backward(y)
    backward(y)
    assert x.grad == 7.0


def test_deep_graphs_take_linear_time():
    x = y = Value(1.0)
    for _ in range(100_000):
        y = y + 1.0
    backward(y)
    assert x.grad == 1.0
    x = y = Value(1.0)
    for _ in range(200):
        y = y + y
    start = time.thread_time()
    backward(y)
    assert x.grad == 2.0**200
    assert time.thread_time() - start < 1


def test_a_node_waits_for_all_its_children_however_long_their_paths():
    x = Value(2.0)
    a = x * 3
    y = a + (a * a) * a  # a is reached by paths of length 1, 2 and 3
    backward(y)
    assert a.grad == 1 + 3 * 36.0
    assert x.grad == 3 * a.grad


def test_ancestors_come_once_each_and_parents_first():
    x = Value(2.0)
    y = (x + 1) * (x + 1) * x
    nodes = ancestors(y)
    assert len(nodes) == len(set(nodes))
    place = {node: i for i, node in enumerate(nodes)}
    assert all(place[parent] < place[node] for node in nodes for parent in node.parents)


def test_the_ends_of_the_range_do_not_overflow():
    for z in (-1000.0, 1000.0):
        y = Value(z).sigmoid()
        assert y.data == (z > 0)
        assert math.isfinite(y.slopes[0])
    zero = Value(0.0)
    backward(zero**0)
    assert zero.grad == 0.0


def test_relu_passes_a_nan_on_as_torchs_does():
    assert math.isnan(Value(math.nan).relu().data)


def test_comparing_with_a_number():
    x, same = Value(3.0), Value(3.0)
    assert x == 3
    assert x != 2
    assert x != same
    assert [same, x].index(x) == 1
    assert len({x, same, x * 1}) == 3
    y = x * x if x == 3 else 0 * x
    backward(y)
    assert (y.data, x.grad) == (9.0, 6.0)
