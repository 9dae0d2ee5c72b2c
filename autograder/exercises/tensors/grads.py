"""A step that autograd does not watch, and hooks that hear of gradients. Oracle: the derivative of |w - t|²."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.ready_made import OPTIMIZERS
from autograder.exercises.tensors.drawing import integer, whole
from autograder.sessions.errors import StudentError

WATCHED = (
    "Autograd watches w, and an in-place step would falsify what it has recorded. Make the step under `with "
    "torch.no_grad():`."
)
NOT_CALLABLE = (
    "A hook is called later: register the function itself, `lambda _: ready(i)`. With `ready(i)` you call it now, and "
    "register the None that it returns."
)
exercise = Exercise(
    "grads",
    points=10,
    minutes=5,
    functions=("descend", "watch"),
    forbid=OPTIMIZERS,
    instead="Write the step yourself: w minus lr times its gradient, in w itself.",
    meanings={
        "a leaf Variable that requires grad": WATCHED,
        "'NoneType' object is not callable": NOT_CALLABLE,
        "does not require grad": "w has lost its requires_grad, or was replaced by a tensor that autograd does not "
        "know: change w in place, and do not change its flag.",
        "unsupported operand type(s) for *: 'float' and 'NoneType'": "w.grad is None after the first step, and the "
        "next backward pass does not set it: the next loss is not computed from the w that you stepped.",
    },
)


def path(start: torch.Tensor, targets: list, lr: float, *, forgets: bool = True, sign: float = 1.0) -> list:
    """w after each step on |w - t|², whose derivative is 2 (w - t); or with gradients that pile up."""
    w, g, found = start, torch.zeros_like(start), []
    for target in targets:
        g = 2 * (w - target) + (0 if forgets else g)
        w = w - sign * lr * g
        found.append(w)
    return found


def descent(student, rng, steps: int, *shape: int) -> tuple:
    start, targets = whole(rng, *shape), [whole(rng, *shape) for _ in range(steps)]
    arguments = (start, targets, integer(rng, 1, 3) / 8)
    got = student.ranks("descend", 1, lambda _: arguments, harness="descending").results[0]
    return arguments, *got


@exercise.check(points=2)
def one_step(student, rng):
    "descend(w, lr): w - lr times its gradient, in w itself."
    arguments, got, *_ = descent(student, rng, 1, 3)
    mistakes = {
        "w has not changed: `w = w - ...` gives the name w, inside your function, to a new tensor. `w -= ...` changes "
        "the tensor that was passed.": arguments[0],
        "You climb: the step goes against the gradient.": path(*arguments, sign=-1.0)[0],
    }
    checks.close(got[0], path(*arguments)[0], name=f"w after a step of descend(w, {arguments[2]:g})", mistakes=mistakes)


@exercise.check(points=3)
def gradients_do_not_pile_up(student, rng):
    "Three losses, three steps: each with its own gradient; w is still autograd's, in the same memory."
    for shape in ((3,), (), (2, 1, 3)):
        three_steps(student, rng, shape)


def three_steps(student, rng, shape: tuple[int, ...]) -> None:
    arguments, got, requires, leaf, same, forgotten = descent(student, rng, 3, *shape)
    piled = path(*arguments, forgets=False)
    for i, expected in enumerate(path(*arguments)):
        mistakes = {
            "backward() adds to w.grad, so this step used the sum of all gradients so far. Clear the gradient after "
            "the step: `w.grad = None`.": piled[i]
        }
        checks.close(
            got[i], expected, name=f"w of shape {shape} after step {i + 1} of 3", mistakes=mistakes if i else {}
        )
    checks.that(requires and leaf, "After your step autograd no longer differentiates with respect to w.")
    checks.that(same, "After your step w is in a different memory: change it in place, `w -= ...`.")
    checks.that(
        forgotten is True,
        "After your step w.grad is not None. Zeros take memory, and an optimizer that keeps a velocity would still "
        "step with them: `w.grad = None` clears the gradient.",
    )


def listened(student, rng, n: int, unused: list, passes: int) -> list:
    weights = [whole(rng, 3, dtype=torch.float64) / 100 for _ in range(n)]
    return student.ranks("watch", 1, lambda _: (weights, unused, passes), harness="watching").results[0]


def heard(calls, expected: list[int], setting: str) -> None:
    """The numbers that `ready` was called with, and that the gradients were there."""
    got = [number for number, *_ in calls]
    mistakes = {
        "Every hook calls ready with the last number: a function looks up i when it is called, and by then the loop "
        "is over. A default argument keeps the value of i.": [max(expected, default=0)] * len(got),
        "You call ready with the tensor that the hook gets: call it with the number.": ["Tensor"] * len(got),
        "The numbers are counted from the other end.": [len(expected) - 1 - i for i in expected],
    }
    if len(expected) < 2 or not got:
        mistakes = {"No hook calls ready here: it must do so in every backward pass.": []}
    checks.equal(got, expected, name=f"{setting}: the calls of ready", mistakes=mistakes)
    early = next((number for number, there, _ in calls if not there), None)
    checks.that(
        early is None,
        f"{setting}: ready({early}) is called before the gradient of this pass is in params[{early}].grad. "
        "`register_hook` calls with the gradient before it is written; `register_post_accumulate_grad_hook` calls when "
        "it is there.",
    )
    late = next((number for number, _, reached in calls if min(reached, default=number) < number), None)
    checks.that(
        late is None,
        f"{setting}: ready({late}) is called when the backward pass has already come to earlier layers. Each parameter "
        "needs a hook of its own, which calls ready as soon as this gradient is there.",
    )


@exercise.check(points=3)
def as_soon_as_it_is_there(student, rng):
    "watch(params, ready): ready(i) when params[i].grad is there, from the last layer to the first."
    n = integer(rng, 3, 5)
    try:
        before, during = listened(student, rng, n, [], 1)
    except StudentError as error:
        if "not callable" not in error.text:
            raise
        raise checks.CheckFailure(f"In the backward pass: {error.text}", mistake=NOT_CALLABLE) from None
    checks.that(
        not before,
        f"ready was called {len(before)} times before there was any backward pass. {NOT_CALLABLE}",
        got=show.show([number for number, *_ in before]),
        expected="no call yet",
    )
    heard(during, list(range(n - 1, -1, -1)), f"{n} layers, one backward pass")


@exercise.check(points=2, needs="as_soon_as_it_is_there")
def in_every_pass(student, rng):
    "In each backward pass again; never for a parameter that the loss does not use."
    _, *passes = listened(student, rng, 4, [2], 3)
    for i, during in enumerate(passes):
        heard(during, [3, 1, 0], f"4 layers, layer 2 is not used, pass {i + 1}")
