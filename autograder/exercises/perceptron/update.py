"""One step of the perceptron's rule. Oracle: the rule, for samples whose prediction is known."""

import functools

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.perceptron.samples import samples
from hpcdl.nn import perceptron as oracle

exercise = Exercise("update", points=10, minutes=8, uses=("predict",))

ALWAYS = "You update always. The perceptron learns only from its mistakes: y - yhat, not y."
EXACTLY = "You update exactly when you should not: only when the prediction is right."


def wrong_and_right(rng: torch.Generator):
    """w, a sample that it gets wrong with its label, for both labels; z is not 0."""
    w = samples(1, 3, rng).squeeze(0) + 1 / 64
    for y in (1.0, -1.0):
        X = samples(60, 3, rng)
        X = torch.cat([X, -y * w[None]])  # one at least on the other side
        yield w, X[oracle.predict(w, X) == -y][0], y


def if_moves(student, w, x, y, lr, value: torch.Tensor, *, always: bool):
    """Return a mistake's `value` if the answer moves `always`, with the label that w gives, too, or does not; otherwise
    what is right."""

    def given() -> torch.Tensor:
        moves = not checks.same(student.update(w.clone(), x, -y, lr), w)
        return value if moves is always else w + 2 * lr * y * x

    return given


@exercise.check(points=4)
def moves_on_a_mistake(student, rng):
    "After a mistake, w moves by lr (y - yhat) x, bias included."
    for w, x, y in wrong_and_right(rng):
        lr = 0.25
        step = 2 * lr * y * x
        no_bias = step.clone()
        no_bias[0] = 0
        named = functools.partial(if_moves, student, w, x, y, lr)
        checks.close(
            student.update(w.clone(), x, y, lr),
            w + step,
            name="update(w, x, y, lr)",
            why=f"Here y = {y:+g} and yhat = {-y:+g}, so y - yhat = {2 * y:+g} and w moves by {2 * lr * y:+g} x.",
            mistakes={
                "You moved the wrong way: it is w + lr (y - yhat) x, plus, and y minus yhat.": w - step,
                ALWAYS: named(w + step / 2, always=True),
                "You moved half the way: y - yhat is +2 or -2 after a mistake, not y.": named(
                    w + step / 2, always=False
                ),
                "w_0 did not move. The bias is a weight like the others: its input is x_0 = 1.": w + no_bias,
                "The learning rate is missing: multiply the step by lr.": w + step / lr,
                EXACTLY: named(w, always=True),
                "w did not move, though the prediction was wrong.": named(w, always=False),
                "The error is y - yhat with yhat = +1 or -1, not y - z.": w + lr * (y - w @ x) * x,
            },
        )


@exercise.check(points=3)
def stays_when_right(student, rng):
    "When the prediction is right, w is unchanged."
    for w, x, y in wrong_and_right(rng):
        y, lr = -y, 0.25  # the label that w gives
        given = w.clone()
        stayed = student.update(given, x, y, lr)
        checks.close(
            stayed,
            w,
            name="update(w, x, y, lr)",
            why=f"Here w already calls x {y:+g}, which is its label: y - yhat = 0.",
            mistakes={
                ALWAYS: w + lr * y * x,
                "You update always, and by twice the label.": w + 2 * lr * y * x,
                EXACTLY: w - 2 * lr * y * x,
            },
        )
        checks.that(
            stayed is not given,
            "The result is the w that was passed in: if you change one, you change both. Return a new tensor, "
            "w.clone().",
        )
        moved = student.update(w.clone(), x, -y, lr)  # the other label: here it must move, or staying means nothing
        checks.that(
            not checks.same(moved, w), "w does not change even if the prediction is wrong: it never learns.", got=moved
        )


@exercise.check(points=2, needs="moves_on_a_mistake")
def at_zero(student, rng):
    "At z = 0 the prediction is +1: a sample of -1 is a mistake, one of +1 is not."
    x, across = samples(2, 3, rng)
    across[1:] += 1 / 64  # no weight is 0
    across[0] = -across[1:] @ x[1:]  # exactly
    for w, where in ((torch.zeros(4), "w = 0"), (across, "a w at right angles to x")):
        goes_by_plus(student, w, x, where)


def goes_by_plus(student, w, x, where: str) -> None:
    """Check the steps for both labels of a sample x with w^T x = 0."""
    why = f"{where} makes z = 0, and sgn(0) = +1."
    mistakes = {
        "You moved half the way: is sgn(0) = 0 in your predict? It is +1.": w - 0.5 * x,
        "w did not move: at z = 0 the prediction is +1, which is wrong here.": w,
    }
    got = student.update(w.clone(), x, -1.0, 0.5)
    checks.close(got, w - x, name=f"update(w, x, -1, lr) at {where}", why=why, mistakes=mistakes)
    moved = "You moved, as if the prediction had been wrong: sgn(0) = +1, in predict and in a test such as y z <= 0."
    mistakes = {moved: w + 0.5 * x, moved + " ": w + x}
    got = student.update(w.clone(), x, 1.0, 0.5)
    checks.close(got, w, name=f"update(w, x, +1, lr) at {where}", why=why, mistakes=mistakes)


@exercise.check(points=1, needs="moves_on_a_mistake")
def w_is_not_changed(student, rng):
    "The result is a new tensor: the w that was passed in keeps its values."
    for w, x, y in wrong_and_right(rng):
        given = w.clone()
        got = student.update(given, x, y, 0.5)
        checks.tensor(got, name="update(w, x, y, lr)", shape=(4,))
        checks.unchanged(given, w, name="w")
        checks.close(got, w + y * x, name="update(w, x, y, lr)", why="Here lr = 0.5 and w is wrong.")
