"""A tape of tensors. Oracle: torch's autograd in float64, on the same formulas.

Nodes live in the student's process: `student.Node(x)` is a handle, operators and methods of handles build the tape
there, and `.data` and `.grad` bring tensors back.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal, whole_number
from autograder.exercises.ready_made import DERIVATIVES, SOFTMAX
from autograder.sessions.errors import StudentError
from autograder.sessions.handle import Handle, computed

exercise = Exercise(
    "tape",
    points=22,
    minutes=30,
    functions=("Node",),
    forbid=(*DERIVATIVES, *SOFTMAX),
    instead="Write the tape yourself: no autograd, and the softmax from exp and log.",
)

SHARED = "Two nodes share one tensor, and += changes it for both: make the sum a new tensor."


ROWS, NARROW, WIDE = 4, 4, 32  # of the matrices whose sweeps are counted
MOST_MADE, MOST_TIMES = 60, 12  # loops over rows stay far below; differences make some hundred times the numbers


class Plain:
    """torch's tensors with the methods of a node: the same formula runs on both."""

    def __init__(self, data: torch.Tensor):
        self.data = data

    def __add__(self, other):
        return Plain(self.data + other.data)

    def __matmul__(self, other):
        return Plain(self.data @ other.data)

    def relu(self):
        return Plain(self.data.relu())

    def flat(self):
        return Plain(self.data.flatten(1))

    def cross_entropy(self, y):
        return Plain(functional.cross_entropy(self.data, y))


def node_of(formula: Callable, text: str) -> Handle:
    """The node that a formula of nodes gives; CheckFailure if one of its operators gives no node."""
    try:
        node = computed(formula)
    except StudentError:
        raise
    except Exception:
        node = None
    checks.that(type(node) is Handle, f"{text}: an operator or a method returns no new node.")
    return node


def asked(student, text: str, f: Callable, inputs: list[torch.Tensor]) -> tuple:
    """`f` on the student's nodes after a sweep, and on torch's: the result, the nodes; torch's result and gradients."""
    nodes = [student.Node(x.clone()) for x in inputs]
    y = node_of(lambda: f(*nodes), text)
    y.backward()
    leaves = [x.clone().requires_grad_() for x in inputs]
    right = f(*map(Plain, leaves)).data
    grads = torch.autograd.grad(right.sum(), leaves)
    return y.data, nodes, right.detach(), grads


def in_float32(student, formula: str, f: Callable, names: str, inputs: list) -> None:
    """The same in float32, as in the lab's training."""
    agrees(student, f"{formula} in float32", f, names, [x.to(F32) for x in inputs])


def agrees(student, formula: str, f: Callable, names: str, inputs: list, mistakes: Callable | None = None) -> None:
    """Value and gradients of a formula; `mistakes(inputs)` gives, by name of an input, gradients of known mistakes."""
    got, nodes, right, expected = asked(student, formula, f, inputs)
    checks.close(got, right, name=f"y.data for {formula}")
    named = mistakes(*inputs) if mistakes else {}
    for name, node, x, value in zip(names.split(), nodes, inputs, expected, strict=True):
        checks.that(
            checks.same(node.data, x),
            f"{name}.data has changed after a sweep of {formula}: no method changes the data of a node.",
            got=node.data,
            expected=x,
        )
        wrong = dict(named.get(name, {}))
        if bool(value.any()):
            wrong.setdefault(
                "It was never reached: every parent gets its part, down to the leaves.",
                torch.zeros_like(value),
            )
        why = f"y.backward() begins with ones in y.grad. {formula}"
        checks.close(node.grad, value, name=f"{name}.grad", why=why, mistakes=wrong)


def no_differences(student, rng, formula: str, f: Callable, labels: bool = False) -> None:
    """Check that a sweep works on whole tensors: differences evaluate the formula once or twice for each number."""
    counts = []
    for width in (NARROW, WIDE):
        rows = (
            width if labels else ROWS
        )  # then the numbers are the square of what a loop over rows or columns goes through
        last = torch.randint(width, (rows,), generator=rng) if labels else normal(rng, width, width)
        inputs = [normal(rng, rows, width), last]
        run = student.ranks("Node", 1, lambda _, inputs=inputs: (formula, inputs), harness="swept")
        made, count, got = run.results[0]
        leaves = [x.clone().requires_grad_() for x in inputs if x.is_floating_point()]
        y = f(*map(Plain, leaves), *([last] if labels else [])).data
        for grad, right in zip(got, torch.autograd.grad(y.sum(), leaves), strict=True):
            checks.close(grad, right, name=f"a gradient of {formula}, {rows} rows of {width}")
        size = sum(leaf.numel() for leaf in leaves) + y.numel()
        counts.append(count)
        checks.that(
            made <= MOST_MADE * size and count <= MOST_TIMES * counts[0],
            f"A sweep of {formula} makes {made:,} numbers for tensors of {size:,}, and runs {count:,} instructions of "
            f"Python ({counts[0]:,} for rows of {NARROW}): it goes through a tensor's numbers one by one. A pull is a "
            "formula for the whole gradient, such as g @ b.T.",
        )


def data_of(formula: Callable, name: str):
    """The data of the node that an operator or a method makes."""
    node = computed(formula)
    checks.that(node is not None, f"{name} is None: the method returns nothing, expected a new node.")
    checks.that(type(node) is Handle, f"{name} is {show.an(show.type_name(node))}, expected a new node.")
    return node.data


@exercise.check(points=3)
def forward(student, rng):
    "Every operator gives a new node with the right data."
    a, b, m, k = normal(rng, 3, 4), normal(rng, 3, 4), normal(rng, 4, 2), normal(rng, 4)
    y = torch.randint(4, (3,), generator=rng)
    node = student.Node
    checks.close(data_of(lambda: node(a) + node(b), "a + b"), a + b, name="(a + b).data")
    checks.close(data_of(lambda: node(a) + node(k), "a + bias"), a + k, name="(a + bias).data")
    checks.close(data_of(lambda: node(a) @ node(m), "a @ b"), a @ m, name="(a @ b).data")
    checks.close(data_of(lambda: node(a).relu(), "a.relu()"), a.relu(), name="a.relu().data")
    image = normal(rng, 2, 3, 2, 2)
    flat = data_of(lambda: node(image).flat(), "a.flat()")
    checks.close(flat, image.flatten(1), name="a.flat().data", why="(n, ...) becomes (n, k).")
    losses = functional.cross_entropy(a, y, reduction="none")
    mistakes = {
        "This is the sum over the samples: divide by n.": losses.sum(),
        "The sign is wrong: it is −log of the probability of y.": -losses.mean(),
    }
    loss = data_of(lambda: node(a).cross_entropy(y), "z.cross_entropy(y)")
    checks.close(loss, losses.mean(), name="z.cross_entropy(y).data", mistakes=mistakes)


@exercise.check(points=3, needs="forward")
def pulls_of_sums_and_products(student, rng):
    "The gradients of a product, a sum and a bias, in float32 too."
    a, b, c = normal(rng, 3, 4), normal(rng, 4, 2), normal(rng, 2, 5)
    agrees(student, "y = a @ b @ c", lambda a, b, c: a @ b @ c, "a b c", [a, b, c])
    two, bias = normal(rng, 3, 4), normal(rng, 2)
    agrees(student, "y = (a + d) @ b", lambda a, d, b: (a + d) @ b, "a d b", [a, two, b])
    rows = "This is one row of the gradient, or the rows' mean: a bias is in every row, so its gradient is their sum."
    agrees(
        student,
        "y = (a @ b + bias) @ c",
        lambda a, b, bias, c: (a @ b + bias) @ c,
        "a b bias c",
        [a, b, bias, c],
        lambda a, b, bias, c: {"bias": {rows: c.sum(1)}},
    )
    in_float32(student, "y = (a @ b + bias) @ c", lambda a, b, k, c: (a @ b + k) @ c, "a b bias c", [a, b, bias, c])
    no_differences(student, rng, "y = a @ b", lambda a, b: a @ b)


@exercise.check(points=1, needs="forward")
def a_node_by_hand(student, rng):
    "Node(data, parents, pulls) is a node of the tape: its pulls take its gradient, and return the parents' parts."
    a, b, c = (normal(rng, 3, 3) for _ in range(3))
    x, y, m = map(student.Node, (a, b, c))
    z = student.Node(a * b, (x, y), (lambda g: g * b, lambda g: g * a))
    node_of(lambda: z @ m, "z @ c").backward()
    g = torch.ones(3, 3, dtype=F64) @ c.T
    why = "z = Node(a * b, (a, b), pulls), y = z @ c: pulls[0](z.grad) goes to a.grad, and pulls[1](z.grad) to b.grad."
    for name, node, right in (("a", x, g * b), ("b", y, g * a), ("z", z, g)):
        checks.close(node.grad, right, name=f"{name}.grad", why=why)


@exercise.check(points=3, needs="forward")
def pulls_of_relu_and_flat(student, rng):
    "ReLU passes the gradient where its input was positive; flat restores its shape; in float32, too."
    a, b = normal(rng, 3, 4), normal(rng, 4, 2)
    a[0, 0], a[1, 2] = 0.0, 0.0
    through = "ReLU lets everything through: its slope is 0 where the input was not positive."
    at_zero = "The slope of ReLU at 0 is 0 here, as torch has it: g where a > 0, not a >= 0."
    agrees(
        student,
        "y = a.relu() @ b, with some a = 0",
        lambda a, b: a.relu() @ b,
        "a b",
        [a, b],
        lambda a, b: {"a": {through: b.sum(1).expand(3, 4), at_zero: b.sum(1) * (a >= 0)}},
    )
    image, m = normal(rng, 2, 3, 2, 2), normal(rng, 12, 2)
    agrees(student, "y = a.flat() @ b", lambda a, b: a.flat() @ b, "a b", [image, m])
    agrees(student, "y = a.relu().flat() @ b", lambda a, b: a.relu().flat() @ b, "a b", [image, m])
    in_float32(student, "y = a.relu().flat() @ b", lambda a, b: a.relu().flat() @ b, "a b", [image, m])
    no_differences(student, rng, "y = a.relu() @ b", lambda a, b: a.relu() @ b)


@exercise.check(points=3, needs="forward")
def pull_of_the_loss(student, rng):
    "Cross-entropy pulls back (softmax(z) − one-hot(y)) / n, in float32 too."
    z, y = normal(rng, 5, 4), torch.randint(4, (5,), generator=rng)
    probabilities, one_hot = z.softmax(1), functional.one_hot(y, 4)
    named = {
        "The gradient is of the sum: divide by n, as the loss is.": probabilities - one_hot,
        "The one-hot part is missing: subtract 1 at the right class.": probabilities / 5,
        "The sign is reversed: softmax − one-hot.": (one_hot - probabilities) / 5,
    }
    formula = "L = z.cross_entropy(y)"
    agrees(student, formula, lambda z: z.cross_entropy(y), "z", [z], lambda z: {"z": named})
    in_float32(student, formula, lambda z: z.cross_entropy(y), "z", [z])
    no_differences(student, rng, formula, lambda z, y: z.cross_entropy(y), labels=True)


@exercise.check(points=2, needs="pull_of_the_loss")
def large_logits(student, rng):
    "Logits of ±1000 neither overflow nor vanish, next to small ones either."
    z = torch.tensor([[1000.0, 0.0, -1000.0], [-1000.0, 1000.0, 999.0], [-2.0, 0.5, 1.0]], dtype=F64)
    z = z + normal(rng, 3, 3)
    y = torch.tensor([0, 2, 1])
    node = student.Node(z.clone())
    loss = node_of(lambda: node.cross_entropy(y), "z.cross_entropy(y)")
    loss.backward()
    right, value = functional.cross_entropy(z, y), loss.data
    overflow = "e^1000 overflows; with one maximum for all rows, small rows vanish: z − z.logsumexp(1, keepdim=True)."
    checks.that(
        type(value) is torch.Tensor and bool(value.isfinite().all()), f"The loss is {show.show(value)}. {overflow}"
    )
    checks.close(value, right, name="z.cross_entropy(y).data")
    checks.close(node.grad, (z.softmax(1) - functional.one_hot(y, 3)) / 3, name="z.grad", why=overflow)


@exercise.check(points=3, needs="pulls_of_sums_and_products")
def a_node_used_twice(student, rng):
    "A node that is used twice gets the sum of both gradients."
    a, b = normal(rng, 3, 3), normal(rng, 3, 3)
    kept = "Only one path counts: add each path's part to what the parent has."
    ones = torch.ones(3, 3, dtype=F64)
    shared = lambda a, b: {"a": {kept: ones}, "b": {SHARED: 2 * ones}}  # noqa: E731
    agrees(student, "y = a + b + a", lambda a, b: a + b + a, "a b", [a, b], shared)
    named = lambda a, b: {"a": {kept: ones, kept + " ": ones @ b.T}}  # noqa: E731
    agrees(student, "y = a @ b + a", lambda a, b: a @ b + a, "a b", [a, b], named)
    agrees(student, "y = a + a", lambda a: a + a, "a", [a], lambda a: {"a": {kept: ones}})
    agrees(student, "y = a @ a", lambda a: a @ a, "a", [a])
    y = torch.tensor([0, 2, 1])
    error = (a.softmax(1) - functional.one_hot(y, 3)) / 3
    ignored = "You ignore the incoming gradient: the pull is g times (softmax − one-hot) / n."
    doubled = lambda a: (lambda loss: loss + loss)(a.cross_entropy(y))  # noqa: E731
    agrees(student, "L = a.cross_entropy(y), L + L", doubled, "a", [a], lambda a: {"a": {ignored: error}})


@exercise.check(points=2, needs="a_node_used_twice")
def children_come_first(student, rng):
    "A node passes on its gradient only when all its children have added theirs, for paths of any length."
    a, b = normal(rng, 3, 3), normal(rng, 3, 3)
    early = "A node passed on before all its children were done: go through the list parents-first, backwards."
    for formula, f in (
        ("u = a @ b, y = u + u @ u @ b", lambda a, b: (lambda u: u + u @ u @ b)(a @ b)),
        ("u = a @ b, y = u @ u @ b + u", lambda a, b: (lambda u: u @ u @ b + u)(a @ b)),
        ("u = a.relu(), y = u @ b + (u + u) @ b", lambda a, b: (lambda u: u @ b + (u + u) @ b)(a.relu())),
    ):
        _, nodes, _, expected = asked(student, formula, f, [a, b])
        grads = [node.grad for node in nodes]
        right = checks.alike(grads[0], expected[0])
        checks.that(right, f"a.grad for {formula} is not what it should be. {early}", got=grads[0])
        checks.close(grads[1], expected[1], name=f"b.grad for {formula}")


@exercise.check(points=1, needs="a_node_used_twice", seconds=5)
def each_node_once(student, rng):
    "Some forty doublings have about 2⁴⁰ paths and 41 nodes: visit each node once."
    x = y = student.Node(normal(rng, 2))
    count = whole_number(rng, 38, 45)
    for _ in range(count):
        y = node_of(lambda y=y: y + y, "y + y")
    y.backward()
    checks.close(x.grad, torch.full((2,), 2.0**count, dtype=F64), name=f"x.grad after {count} doublings")


@exercise.check(points=1, needs="a_node_used_twice")
def a_second_sweep(student, rng):
    "Gradients are zeros before a sweep; a second call gives the same, and no two nodes share a gradient."
    a, b = student.Node(normal(rng, 2, 2)), student.Node(normal(rng, 2, 2))
    y = node_of(lambda: a + b + a, "y = a + b + a")
    for name, node in (("a", a), ("y", y)):
        checks.close(node.grad, torch.zeros(2, 2, dtype=F64), name=f"{name}.grad before a sweep")
    y.backward()
    y.backward()
    two, one = torch.full((2, 2), 2.0, dtype=F64), torch.ones(2, 2, dtype=F64)
    again = "The second sweep added to the first: set every grad to zeros before."
    checks.close(
        a.grad, two, name="a.grad after two sweeps of y = a + b + a", mistakes={again: 2 * two, again + " ": 3 * one}
    )
    checks.close(b.grad, one, name="b.grad after two sweeps of y = a + b + a", mistakes={again: 2 * one, SHARED: two})
    checks.close(y.grad, one, name="y.grad", mistakes={again: 2 * one, SHARED: two})
    node_of(lambda: b + b, "b + b").backward()
    checks.close(b.grad, two, name="b.grad after a sweep from another node, b + b", mistakes={again: 3 * one})
    x, w, b = (student.Node(normal(rng, *shape)) for shape in ((4, 2, 3), (6, 3), (3,)))
    text, labels = "L = ((x.flat() @ w).relu() + b).cross_entropy(y)", torch.tensor([0, 2, 1, 2])
    loss = node_of(lambda: ((x.flat() @ w).relu() + b).cross_entropy(labels), text)
    grads = []
    for _ in range(2):
        loss.backward()
        grads.append([node.grad for node in (x, w, b)])
        for grad in grads[-1]:
            checks.tensor(grad, name=f"the gradient of x, w or b after a sweep of {text}", dtype=F64)
    for name, first, second in zip(("x", "w", "b"), *grads, strict=True):
        checks.close(
            second,
            first,
            name=f"{name}.grad after a second sweep through all operations",
            mistakes={again: 2 * first},
            why="A function in `pulls` is called in every sweep: it must not change what it uses.",
        )
