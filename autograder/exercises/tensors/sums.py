"""Sums over an axis that stays, and over an index that goes. Oracle: element by element."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, whole

IN_PLACE = "`x /= ...` writes into x, and whole numbers cannot hold a ratio: make a new tensor, `x / ...`."
ORDER = (
    "Two tensors disagree about the length of a letter: in `kc,ncpq->nkpq` each letter stands for one axis, in the "
    "order of the shapes, w (K, C) and x (N, C, P, Q)."
)
exercise = Exercise(
    "sums",
    points=10,
    minutes=5,
    functions=("shares", "mix"),
    meanings={
        "can't be cast to the desired output type": IN_PLACE,
        "does not broadcast with previously seen size": ORDER,
        "must match the size of tensor b": "The sum has lost its axis, so broadcasting aligns the rest with the "
        "columns. keepdim=True keeps an axis of length 1.",
    },
)


def parts(x: torch.Tensor) -> torch.Tensor:
    dtype = x.dtype if x.is_floating_point() else torch.float32
    totals = [sum(row) for row in x.tolist()]
    return built(tuple(x.shape), dtype, lambda i, j: x[i, j].item() / totals[i])


def mixed(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    (k, c), (n, _, p, q) = w.shape, x.shape

    def element(image: int, out: int, row: int, column: int) -> torch.Tensor:
        return sum(w[out, channel] * x[image, channel, row, column] for channel in range(c))  # type: ignore[return-value]

    return built((n, k, p, q), x.dtype, element)


def mistakes_of_shares(x: torch.Tensor) -> dict:
    """For x with as many rows as columns, where all of them fit."""
    return {
        "keepdim is missing: the sums of the rows, shape (n,), meet the columns. keepdim=True keeps them as a column "
        "of shape (n, 1).": x / x.sum(1),
        "Your columns add up to 1. dim is the axis to sum over: 0 counts rows, 1 runs along a row.": x
        / x.sum(0, keepdim=True),
        "All of x adds up to 1: give the axis to sum over.": x / x.sum(),
        "You divided by the mean: the shares add up to the number of columns, not to 1.": x
        / x.float().mean(1, keepdim=True),
        "These are the sums themselves: divide x by them.": x.sum(1, keepdim=True),
    }


def mistakes_of_mix(w: torch.Tensor, x: torch.Tensor) -> dict:
    """For sizes that are all equal, where all of them fit."""
    return {
        "w is read the wrong way round: its first axis is k, the output, and the sum runs over its second.": (
            torch.einsum("ck,ncpq->nkpq", w, x)
        ),
        "@ multiplies the last two axes, rows and columns: here the sum runs over channels.": w @ x,
        "The axes of images and channels have changed places: the letters after the arrow are the result's.": (
            torch.einsum("kc,ncpq->knpq", w, x)
        ),
        "The weights of an output are added up before they meet x: `c` is in both, so sum their products.": (
            torch.einsum("kc,ncpq->nkpq", w.sum(1, keepdim=True).expand_as(w), x)
        ),
        "c is still there: einsum sums over each letter that is missing after the arrow.": torch.einsum(
            "kc,ncpq->nkcpq", w, x
        ),
    }


@exercise.check(points=3)
def rows_add_up_to_one(student, rng):
    "shares(x): each row divided by its sum, also where x is square and a missing axis goes unnoticed."
    x = whole(rng, 3, 3)
    x[:, 0] *= -100  # no sum of a row is 0
    got = student.shares(x.clone())
    checks.close(got, parts(x), name="shares(x) of x (3, 3)", mistakes=mistakes_of_shares(x))


@exercise.check(points=2, needs="rows_add_up_to_one")
def any_matrix(student, rng):
    "Other shapes, whole numbers, negative numbers; x is unchanged."
    for shape, dtype in (
        ((2, 5), torch.float64),
        ((4, 1), torch.float32),
        ((3, 4), torch.int64),
        ((1, 3), torch.float32),
    ):
        x = whole(rng, *shape, dtype=dtype)
        x[:, 0] *= -100  # no sum of a row is 0
        before = x.clone()
        got = student.shares(x)
        checks.unchanged(x, before, name="x")
        checks.close(got, parts(x), name=f"shares(x) of x {shape}")


@exercise.check(points=3)
def a_sum_over_channels(student, rng):
    "mix(w, x): y[n, k, p, q] is the sum over c of w[k, c] x[n, c, p, q], also where all sizes are equal."
    w, x = whole(rng, 2, 2), whole(rng, 2, 2, 2, 2)
    got = student.mix(w.clone(), x.clone())
    checks.close(got, mixed(w, x), name="mix(w, x) of sizes 2", mistakes=mistakes_of_mix(w, x))


@exercise.check(points=2, needs="a_sum_over_channels")
def any_sizes(student, rng):
    "Any numbers of images, channels and outputs, whole numbers too."
    for (k, c, n, p, q), dtype in (
        ((4, 3, 2, 1, 5), torch.float64),
        ((1, 2, 3, 2, 2), torch.float32),
        ((3, 1, 2, 2, 1), torch.int64),
    ):
        w, x = whole(rng, k, c, dtype=dtype), whole(rng, n, c, p, q, dtype=dtype)
        checks.close(
            student.mix(w.clone(), x.clone()), mixed(w, x), name=f"mix(w, x) of w ({k}, {c}), x ({n}, {c}, {p}, {q})"
        )
