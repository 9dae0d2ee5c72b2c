"""A check sees the same values whether the student's code runs in this process or in a worker of its own."""

import time

import pytest
import torch

from autograder import checks
from autograder.boundary.protocol import Foreign
from autograder.sessions import socket_grader
from autograder.sessions.errors import StudentError
from autograder.sessions.handle import Handle, PlainValueError, computed

CODE = """
import torch

def descend(grad, w, steps):
    path = [w]
    for _ in range(steps):
        w = w - 0.1 * grad(w)
        path.append(w)
    return path

def spoil(w, state, generator, items):
    w.mul_(2)
    state["draw"] = torch.rand(1, generator=generator)
    state["w"] = w
    items.append(3)
    return w

def batches(n):
    for i in range(n):
        yield list(range(i))

def adder(n):
    return lambda x: x + n

def endless():
    while True:
        yield 0

class Always:
    def __eq__(self, other):
        return True
    def __bool__(self):
        return True
    def __float__(self):
        return 1.0
    def __sub__(self, other):
        return 0.0

def always():
    return Always()

class Dual:
    def __init__(self, value, slope):
        self.value, self.slope = value, slope
    def __mul__(self, other):
        if not isinstance(other, Dual):
            return Dual(self.value * other, self.slope * other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
    __rmul__ = __mul__
    def __neg__(self):
        return Dual(-self.value, -self.slope)
    def __add__(self, other):
        return [self.value, other]
    def __truediv__(self, other):
        return 10**10
    def scaled(self, by):
        return Dual(by * self.value, by * self.slope)

def divide(a, b):
    return a / b

def todo():
    raise NotImplementedError

def unsupported():
    raise NotImplementedError("conv on complex tensors")

def leave():
    raise SystemExit(3)

class Custom(BaseException):
    pass

def custom():
    raise Custom("own")

class BadMessage(Exception):
    def __str__(self):
        raise ValueError

def bad_message():
    raise BadMessage

def stubborn():
    import time
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass

def recurse():
    return recurse()
"""


@pytest.fixture
def student(session):
    running = session(CODE)
    running.start_check(20)
    return running.student


def problem(function, *args) -> StudentError:
    with pytest.raises(StudentError) as caught:
        function(*args)
    return caught.value


def test_a_function_of_the_check_is_called_back_and_the_argument_stays_itself(student):
    w, grad = torch.ones(2), checks.counted(lambda w: 2 * w)
    path = student.descend(grad, w, 3)
    assert [round(float(x[0]), 6) for x in path] == [1, 0.8, 0.64, 0.512]
    assert path[0] is w
    assert grad.calls == 3


def test_after_the_call_the_arguments_hold_what_the_code_left_in_them(student):
    w, state, items = torch.ones(2), {"a": 1}, [1]
    generator, twin = (torch.Generator().manual_seed(5) for _ in range(2))
    result = student.spoil(w, state, generator, items)
    assert w.tolist() == [2, 2]
    assert result is w
    assert state["w"] is w
    assert items == [1, 3]
    assert state["draw"].equal(torch.rand(1, generator=twin))
    assert torch.equal(generator.get_state(), twin.get_state())


def test_only_what_changed_comes_back(local):
    session = local("def f(a, b, c):\n    a[1].append(3)\n    b['y'] = b.pop('x')\n    c[0] = c[0]\n")
    session.start_check(5)
    serve, answers = session.worker.serve, []
    session.worker.serve = lambda frame: answers.append(serve(frame)) or answers[-1]
    a, b, c, x = [1, [2]], {"x": 1}, [{"k": 1}], torch.ones(2)
    session.student.f(a, b, [*c, x])
    assert (a, b) == ([1, [2, 3]], {"y": 1})
    assert [change for change, _ in answers[0].header[2]] == [1, 2]  # neither `a` itself nor `c` nor what is in it


def test_a_generator_arrives_as_a_list(student):
    assert student.batches(3) == [[], [0], [0, 1]]


def test_a_function_that_is_returned_can_be_called(student):
    assert student.adder(2)(torch.ones(1)).item() == 3


def test_an_endless_generator_is_a_problem_with_a_name(student):
    assert "does its loop end?" in problem(student.endless).text


def test_an_object_that_claims_to_equal_everything_arrives_dead(student):
    got = student.always()
    assert type(got) is Foreign
    for verdict in (
        lambda: checks.close(got, 1.0, name="always()"),
        lambda: checks.equal(got, 1, name="always()"),
        lambda: checks.tensor(got, name="always()"),
    ):
        with pytest.raises(checks.CheckFailure, match="Always"):
            verdict()
    with pytest.raises(TypeError):
        got - 1


def test_objects_of_a_class_stay_where_they_are_and_take_operators_and_methods(student):
    x = student.Dual(3.0, 1.0)
    y = 2 * x * x
    assert type(y) is Handle
    assert (y.value, y.slope) == (18.0, 12.0)
    assert (-x).value == -3.0
    assert x.scaled(10).slope == 10.0
    assert x != student.Dual(3.0, 1.0)  # comparing is never the student's


def test_an_object_is_shown_by_the_call_that_made_it(student):
    x = student.Dual(3.0, slope=1.0)
    assert str(x) == "Dual(3., slope=1.)"
    assert str(2 * x).endswith("Dual object>")  # no call by name made it
    assert str(student.Dual(torch.ones(2), 1.0)).endswith("Dual object>")  # its tensors are not kept
    assert str(student.Dual("x" * 60, 1.0)).endswith("Dual object>")
    assert str(student.Dual(x, 1.0)) == "Dual(Dual(3., slope=1.), 1.)"


def test_no_formula_computes_with_a_plain_value(student):
    """2 ** 10_000_000_000 would take the grader's memory and time, and no limit of the answer's ends it."""
    x = student.Dual(3.0, 1.0)
    assert computed(lambda: 2 ** (x / x)) == 10**10
    assert computed(lambda: x + 1.0 + x) == [3.0, 1.0]
    with pytest.raises(PlainValueError, match="an operator gives a list"):
        x + 1.0


@pytest.mark.parametrize(
    ("name", "args", "kind", "text"),
    [
        ("divide", (1, 0), "exception", "division by zero"),
        ("todo", (), "not_done", ""),
        ("unsupported", (), "exception", "conv on complex tensors"),
        ("leave", (), "exit", "3"),
        ("custom", (), "exception", "own"),
        ("bad_message", (), "exception", "cannot be shown"),
        ("recurse", (), "exception", "recursion"),
        ("divide", (1,), "signature", "`divide(a, b)` does not take"),
        ("divid", (1, 2), "undefined", "Found `divide`: rename it?"),
        ("torch", (), "undefined", "not a function"),
        ("descend", (lambda w: 1 / 0, torch.ones(1), 1), "exception", "division by zero"),
    ],
)
def test_each_problem_has_its_kind_and_its_words(student, name, args, kind, text):
    error = problem(getattr(student, name), *args)
    assert error.kind == kind
    assert text in error.text


def test_a_problem_names_the_line_of_the_students_code(student):
    error = problem(student.divide, 1, 0)
    assert (error.function, error.line) == ("divide", 1 + CODE.splitlines().index("    return a / b"))


def test_a_verdict_inside_a_function_of_the_check_is_not_the_students_to_swallow(student):
    def grad(w):
        raise checks.CheckFailure("called at the wrong point")

    with pytest.raises(checks.CheckFailure, match="wrong point"):
        student.descend(grad, torch.ones(1), 1)


def test_code_that_swallows_the_interruption_is_stopped_all_the_same(session):
    running = session(CODE)
    running.start_check(0.3)
    error = problem(running.student.stubborn)
    assert error.kind == "timeout"
    assert "0.3 s" in error.text


def test_the_last_call_is_shown_with_the_values_from_before_it(session):
    running = session(CODE)
    running.start_check(5)
    running.student.spoil(torch.ones(2), {}, torch.Generator(), [1])
    assert running.last_call() == "spoil(tensor([1., 1.], float32), {}, a torch.Generator, [1])"


def test_a_handle_of_an_earlier_check_cannot_be_called(session):
    running = session("kept = []\ndef keep(f):\n    kept.append(f)\ndef use():\n    return kept[0](1)\n")
    running.start_check(5)
    running.student.keep(lambda x: x)
    running.start_check(5)
    assert "never given out" in problem(running.student.use).text


def test_where_an_earlier_function_fails_the_line_that_led_there_is_named_too(session):
    code = "def right(a, b):\n    return a + b\n\ndef wrong(a):\n    return right(a, 'b')\n"
    running = session(code)
    running.start_check(5)
    error = problem(running.student.wrong, 1)
    assert (error.function, error.line) == ("right", 2)
    assert error.via.startswith("line 5 of wrong")
    assert problem(running.student.right, 1, "b").via == ""


def test_an_object_of_a_check_that_stands_for_a_function_is_shown_by_its_name(session):
    running = session(CODE)
    running.start_check(5)
    running.student.descend(checks.counted(lambda w: w), torch.ones(1), 0)
    assert "<lambda>" in running.last_call()


def test_a_flood_of_calls_back_costs_its_own_time(remote, monkeypatch):
    """Otherwise they may take ten times the limit: sixty calls."""
    monkeypatch.setattr(socket_grader, "MOST_CALLS", 5)
    calls, running = [], remote("def ask(f):\n    while True: f(1)\n")
    running.start_check(0.3)
    assert problem(running.student.ask, lambda x: calls.append(x) or time.sleep(0.05)).kind == "timeout"
    assert len(calls) < 30
