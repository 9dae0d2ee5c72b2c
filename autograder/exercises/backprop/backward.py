"""The sweep of reverse-mode differentiation over a graph of scalar nodes. Oracle: autograd.

The nodes live in the student's process: `student.Value(2.0)` is a handle on one of `hpcdl.nn.value`, and operators on
handles build the graph there. `student.backward(y)` receives the very node, and `x.grad` reads a plain number back.
"""

from typing import Any

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import F64
from autograder.exercises.ready_made import DERIVATIVES
from autograder.sessions.errors import StudentError
from autograder.sessions.handle import Handle, computed

exercise = Exercise(
    "backward",
    points=15,
    minutes=15,
    functions=("backward", "Value"),
    forbid=DERIVATIVES,
    instead="Write the backward pass yourself, with the four equations and without autograd.",
)


def value_of(f, *inputs) -> Any:
    """What `f` computes from Values, by their own operators: a Value."""
    try:
        result = computed(lambda: f(*inputs))
    except StudentError:
        raise
    except Exception as error:
        checks.fail(f"An operator of Value returns no Value ({error}).")
    checks.that(type(result) is Handle, f"An operator of Value returns {show.an(show.type_name(result))}, not a Value.")
    return result


def swept(student, f, numbers):
    """Gradients of `f` at `numbers` after the student's sweep, and those of autograd; both are lists of floats."""
    inputs = [student.Value(x) for x in numbers]
    student.backward(value_of(f, *inputs))
    oracle = [torch.tensor(x, dtype=F64, requires_grad=True) for x in numbers]
    expected = torch.autograd.grad(f(*oracle), oracle)
    return [x.grad for x in inputs], [g.item() for g in expected]


def some(rng, n: int) -> list[float]:
    """Numbers of two decimals between 0.5 and 1.5, all different, so that a message can be followed by hand."""
    return [0.5 + (i + int(torch.randint(10, (), generator=rng)) / 10) / n for i in range(n)]


def check_grads(got, expected, names: str, formula: str, mistakes=None) -> None:
    for x, grad, right in zip(names.split(), got, expected, strict=True):
        named = dict((mistakes or {}).get(x, {}))
        if right != 1.0:
            named.setdefault(
                "It is 1, but only the last node's should be 1. Does a call of backward on a parent set it again?", 1.0
            )
            named.setdefault("It was never reached: every parent gets its part, down to the leaves.", 0.0)
        checks.close(grad, right, name=f"{x}.grad for {formula}", rtol=1e-9, mistakes=named)


EARLY = (
    "u passed on its gradient before all paths to it had arrived: visit the nodes from the largest index to the "
    "smallest."
)


def arrives_before_it_goes_on(student) -> None:
    """The order of a chain, which a wrong number alone does not tell."""
    x = student.Value(2.0)
    u = value_of(lambda: x * 3)
    student.backward(value_of(lambda: u * 5))
    checks.that(
        not (checks.same(u.grad, 5.0) and checks.same(x.grad, 0.0)),
        f"For u = 3 x, y = 5 u: u.grad is 5, as it should be, and x.grad is 0, expected 15. {EARLY}",
    )


@exercise.check(points=4)
def the_chain_rule(student, rng):
    "Without reuse, every gradient is the product of the slopes along the path."
    arrives_before_it_goes_on(student)
    a, b, c = some(rng, 3)
    cases = (
        ("y = a", lambda a: a * 1.0, "a", [a]),
        ("y = 3 a + b", lambda a, b: a * 3 + b, "a b", [a, b]),
        ("y = a b − c", lambda a, b, c: a * b - c, "a b c", [a, b, c]),
        ("y = tanh(exp(a) / b)", lambda a, b: (a.exp() / b).tanh(), "a b", [a, b]),
    )
    for formula, f, names, numbers in cases:
        got, expected = swept(student, f, numbers)
        check_grads(got, expected, names, f"{formula} at {', '.join(f'{x:.3g}' for x in numbers)}")


@exercise.check(points=1, needs="the_chain_rule")
def the_root_and_what_lies_between(student, rng):
    "The last node's own gradient is 1, and every node on the way has its gradient."
    (at,) = some(rng, 1)
    x = student.Value(at)
    u = value_of(lambda: x * 3)
    y = value_of(lambda: u * u + 1)
    student.backward(y)
    checks.close(y.grad, 1.0, name="y.grad", why="How fast y changes with itself: ∂y/∂y = 1.")
    checks.close(u.grad, 6 * at, name=f"u.grad for u = 3 x, y = u² + 1 at x = {at:g}", why="∂y/∂u = 2 u = 6 x.")


@exercise.check(points=3)
def a_reused_node_accumulates(student, rng):
    "A node that is used twice sums the gradients from both paths."
    arrives_before_it_goes_on(student)
    a, b = some(rng, 2)
    overwritten = "The last path overwrote the others: a gradient accumulates, parent.grad += slope * node.grad."
    got, expected = swept(student, lambda a: a * a, [a])
    check_grads(got, expected, "a", f"y = a a at {a:.3g}", {"a": {overwritten: a}})
    got, expected = swept(student, lambda a, b: a * b + a, [a, b])
    named = {"a": {overwritten: 1.0, overwritten + " ": b}}  # by the path through the sum, or by the product
    check_grads(got, expected, "a b", f"y = a b + a at {a:.3g}, {b:.3g}", named)


@exercise.check(points=2, needs="a_reused_node_accumulates")
def a_node_waits_for_its_children(student, rng):
    "A node passes its gradient on only when all paths to it have arrived, however long they are."
    for formula, f in (
        ("u = 2 x, y = u + u u u", lambda u: u + u * u * u),
        ("u = 2 x, y = u u u + u", lambda u: u * u * u + u),
        ("u = 2 x, y = u + tanh(exp(u))", lambda u: u + u.exp().tanh()),
    ):
        (x,) = some(rng, 1)
        got, expected = swept(student, lambda x, f=f: f(x * 2), [x])
        checks.that(
            checks.is_number(got[0]) and abs(got[0] - expected[0]) <= 1e-9 * abs(expected[0]),
            f"x.grad for {formula} at x = {x:g} is {show.show(got[0])}, expected {show.number(expected[0])} {EARLY}",
        )


@exercise.check(points=1, needs="a_reused_node_accumulates")
def a_second_sweep(student, rng):
    "A second call gives the same result: every pass starts from zero."
    for at in some(rng, 4):  # a set may have the last node first, whose gradient is 1 anyway
        x = student.Value(at)
        u = value_of(lambda x=x: x * x)
        y = value_of(lambda x=x, u=u: u * u + x)
        student.backward(y)
        student.backward(y)
        for name, node, right in (("u", u, 2 * at**2), ("x", x, 4 * at**3 + 1)):
            checks.that(
                type(node.grad) is float and abs(node.grad - right) < 1e-9,
                f"After a second call {name}.grad is different: the second pass added to the first one. Set every grad "
                "to 0 first.",
                got=node.grad,
                expected=right,
                why=f"u = x x, y = u u + x at x = {at:g}.",
            )
        student.backward(x)
        why = "A call for x itself, after one for y: every call starts from zero, and ∂x/∂x = 1."
        checks.close(x.grad, 1.0, name="x.grad after backward(x)", why=why)


@exercise.check(points=2, needs="the_chain_rule", seconds=20)
def a_long_chain(student, rng):
    "A chain of 5,000 nodes needs no recursion."
    (slope,) = some(rng, 1)
    x = student.Value(1.0)
    y = value_of(lambda: x * slope)
    for _ in range(5000):
        y = value_of(lambda y=y: y + 0.001)
    student.backward(y)
    checks.close(x.grad, slope, name=f"x.grad at the end of a product with {slope:g} and 5,000 additions")


@exercise.check(points=2, needs="a_reused_node_accumulates", seconds=3)
def each_node_once(student, rng):
    "Forty doublings have 2⁴⁰ paths and 41 nodes: each node is visited once, not once for each path."
    (slope,) = some(rng, 1)
    x = student.Value(1.0)
    y = value_of(lambda: x * slope)
    for _ in range(40):
        y = value_of(lambda y=y: y + y)
    student.backward(y)
    checks.close(x.grad, slope * 2.0**40, name=f"x.grad after 40 doublings of {slope:g} x", rtol=1e-12)
