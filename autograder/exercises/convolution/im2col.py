"""Images as matrices of columns, a column for each window, and the way back.

Oracles: a convolution with filters that have a single 1 for im2col, and its gradient for col2im, which is its adjoint.
"""

import functools

import torch
from torch.nn import functional

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.convolution.drawing import numbered, whole, window
from autograder.exercises.convolution.libraries import ADJOINT
from autograder.exercises.convolution.oracles import columns, output
from autograder.exercises.convolution.outputs import TWO_SIDES
from autograder.exercises.drawing import F32, F64, normal

exercise = Exercise("im2col", points=15, minutes=15, functions=("im2col", "col2im"), **ADJOINT)


@exercise.check(points=3)
def a_column_for_each_window(student, rng):
    "Column q + Q p holds the pixels of the window at (p, q), row by row."
    for h, w, r, s in ((3, 3, 2, 2), (4, 5, 2, 2), (4, 5, 2, 3), (5, 4, 3, 1), (3, 4, 3, 4)):
        x = numbered(rng, 1, 1, h, w)
        check_columns(student.im2col(x.clone(), r, s), x, r, s)
    any_pixels(student, rng, 1, 1, 4, 5, 2, 3)


def any_pixels(student, rng, n: int, c: int, h: int, w: int, r: int, s: int, stride=1, padding=0, dtype=F64) -> None:
    """Check im2col for pixels that are in no order, as `numbered` ones are."""
    x = normal(rng, n, c, h, w, dtype=dtype)
    check_columns(student.im2col(x.clone(), r, s, stride, padding), x, r, s, stride, padding)


@exercise.check(points=3, needs="a_column_for_each_window")
def channels_stand_below_each_other(student, rng):
    "The rows run over channel, row and column of the window, in this order; each image has a matrix of its own."
    for n, c, h, w, r, s in ((1, 2, 3, 3, 2, 2), (2, 1, 3, 4, 2, 2), (3, 2, 4, 5, 3, 2)):
        x = numbered(rng, n, c, h, w)
        check_columns(student.im2col(x.clone(), r, s), x, r, s)
    any_pixels(student, rng, 2, 3, 4, 5, 3, 2)


@exercise.check(points=2, needs="a_column_for_each_window")
def windows_with_stride_and_padding(student, rng):
    "Padding puts zeros around the image; stride skips windows."
    x = numbered(rng, 2, 1, 7, 6)
    for stride, padding in ((2, 0), (3, 0), (1, 1), (2, 1), (3, 2)):
        check_columns(student.im2col(x.clone(), 3, 2, stride, padding), x, 3, 2, stride, padding)
    for n, _, h, w, r, s, stride, padding in (window(rng) for _ in range(3)):
        x = numbered(rng, n, 1, h, w)
        check_columns(student.im2col(x.clone(), r, s, stride, padding), x, r, s, stride, padding)
    for dtype in (F64, F32):
        any_pixels(student, rng, 2, 1, 7, 6, 3, 2, 2, 1, dtype)


MEAN = "This is the mean of the overlapping values: the adjoint adds them up."
WINDOWS = (
    (1, 1, 3, 3, 2, 2, 1, 0),
    (2, 2, 5, 4, 3, 2, 1, 0),
    (2, 1, 7, 6, 3, 3, 2, 1),
    (1, 3, 5, 5, 2, 2, 3, 0),
    (1, 1, 4, 3, 2, 3, 1, 2),
    (1, 1, 3, 4, 2, 2, 1, 3),
)


@exercise.check(points=2)
def overlaps_are_counted(student, rng):
    "col2im of a matrix of ones counts, for each pixel, the windows that see it."
    for n, c, h, w, r, s, stride, padding in (*WINDOWS, window(rng)):
        shape = n, c, h, w
        ones = torch.ones_like(columns(torch.ones(shape, dtype=F64), r, s, stride, padding))
        got = student.col2im(ones.clone(), shape, r, s, stride, padding)
        expected = folded(ones, shape, r, s, stride, padding)
        once = functools.partial(one_window, student, expected, shape, r, s, stride, padding)
        checks.close(
            got,
            expected,
            name=f"col2im(ones, ({n}, {c}, {h}, {w}), {r}, {s}, stride={stride}, padding={padding})",
            why="A pixel that several windows see gets the sum of its entries in all of them.",
            mistakes={
                MEAN: functools.partial(once, means=True),
                "The last window overwrote the others: add to what is there.": functools.partial(once, means=False),
                "Pixels that no window sees stay 0: start from zeros, not from ones.": expected + 1,
            },
        )


def one_window(student, right, shape, r: int, s: int, stride: int, padding: int, means: bool) -> torch.Tensor:
    """What is left where each pixel has the number of one window, if the answer takes `means`, or does not.

    Other numbers than ones tell; in the other case this is what is `right`.
    """
    like = columns(torch.zeros(shape, dtype=F64), r, s, stride, padding)
    cols = torch.arange(1.0, 1.0 + like.numel(), dtype=F64).view(like.shape)
    got = student.col2im(cols.clone(), tuple(shape), r, s, stride, padding)
    found = checks.alike(got, adjoint_mistakes(cols, shape, r, s, stride, padding)[MEAN]())
    return (right > 0).double() if found is means else right


def folded(cols, shape, r, s, stride=1, padding=0):
    """The adjoint of im2col, by autograd: the gradient of <im2col(x), cols> with respect to x."""
    x = torch.zeros(shape, dtype=F64, requires_grad=True)
    return torch.autograd.grad((columns(x, r, s, stride, padding) * cols).sum(), x)[0]


def adjoint_mistakes(cols, shape, r: int, s: int, stride: int, padding: int) -> dict:
    n, c = shape[:2]
    swapped = cols.view(n, c, r, s, -1).transpose(2, 3).reshape(cols.shape)
    channel_last = cols.view(n, r * s, c, -1).transpose(1, 2).reshape(cols.shape)
    seen = folded(torch.ones_like(cols), shape, r, s, stride, padding).clamp(min=1)
    return {
        "Rows of the matrix run over c, then r, then s: here r and s are swapped.": lambda: folded(
            swapped, shape, r, s, stride, padding
        ),
        "Rows of the matrix run over c first: here the channel comes last.": lambda: folded(
            channel_last, shape, r, s, stride, padding
        ),
        MEAN: lambda: folded(cols, shape, r, s, stride, padding) / seen,
    }


@exercise.check(points=4, needs="overlaps_are_counted")
def col2im_is_the_adjoint(student, rng):
    "⟨im2col(x), c⟩ = ⟨x, col2im(c)⟩ for every image x and every matrix c."
    for *shape, r, s, stride, padding in (*WINDOWS, window(rng), window(rng)):
        cols = whole(rng, *columns(torch.zeros(*shape, dtype=F64), r, s, stride, padding).shape)
        checks.close(
            student.col2im(cols.clone(), tuple(shape), r, s, stride, padding),
            folded(cols, shape, r, s, stride, padding),
            name=f"col2im(columns, {tuple(shape)}, {r}, {s}, stride={stride}, padding={padding})",
            why="Every entry of the matrix goes back to the pixel that im2col took it from, and is added there.",
            mistakes=adjoint_mistakes(cols, shape, r, s, stride, padding),
        )


@exercise.check(points=1, needs="a_column_for_each_window")
def leaves_image_and_columns_alone(student, rng):
    "x and the columns are the same after the calls."
    x, cols = whole(rng, 1, 1, 4, 4), whole(rng, 1, 4, 9)  # of channels other checks speak
    check_columns(checks.leaves_alone(lambda x: student.im2col(x, 2, 2), x=x), x, 2, 2)
    got = checks.leaves_alone(lambda columns: student.col2im(columns, (1, 1, 4, 4), 2, 2), columns=cols)
    checks.close(got, folded(cols, (1, 1, 4, 4), 2, 2), name="col2im(columns, (1, 1, 4, 4), 2, 2)")
    for *shape, r, s, stride, padding in (WINDOWS[2], window(rng)):  # of these values other checks speak
        x, options = normal(rng, *shape), (r, s, stride, padding)
        checks.leaves_alone(lambda x, options=options: student.im2col(x, *options), x=x)
        cols = columns(x, *options)
        back = lambda columns, rest=(tuple(shape), *options): student.col2im(columns, *rest)  # noqa: E731
        checks.leaves_alone(back, columns=cols)


def check_columns(got, x, r: int, s: int, stride: int = 1, padding: int = 0) -> None:
    """`got` is im2col(x, r, s, stride, padding)."""
    n, c = x.shape[:2]
    right = columns(x, r, s, stride, padding)
    p, q = output(x, torch.zeros(1, 1, r, s, dtype=F64), stride, padding)
    cells, places = right.view(n, c, r, s, p * q), right.view(n, c * r * s, p, q)
    mistakes = {
        "The matrix is transposed: a column for each window, a row for each place in it.": right.transpose(1, 2),
        "The columns run down the image: window (p, q) is column q + Q p, row after row.": places.transpose(
            2, 3
        ).flatten(2),
        "Each window is read column by column: its rows come first, i before j.": cells.transpose(2, 3).flatten(1, 3),
        "The channel comes last: the rows run over c, then i, then j.": cells.permute(0, 2, 3, 1, 4).flatten(1, 3),
        "The windows do not overlap here: they move by stride, not by their own size.": lambda: columns(
            x, r, s, max(r, s)
        ),
        "Each window is flipped: place (i, j) of window (p, q) is pixel (p + i, q + j).": cells.flip(2, 3).flatten(
            1, 3
        ),
        "The batch is folded into the columns: im2col gives a matrix for each image, (N, C r s, P Q).": right.transpose(
            0, 1
        ).flatten(1),
    }
    if padding:
        if padding <= min(x.shape[2:]):  # torch wraps around once
            wrapped = functional.pad(x, (padding,) * 4, mode="circular")
            mistakes["The window meets the other side of the image: padding is zeros."] = columns(wrapped, r, s, stride)
        mistakes[TWO_SIDES] = lambda: columns(functional.pad(x, (padding, padding)), r, s, stride)
        mistakes["padding is not used."] = lambda: columns(x, r, s, stride)
    if stride > 1:
        mistakes["stride is not used."] = lambda: columns(x, r, s, 1, padding)
        thin = functional.pad(x[..., ::stride, ::stride], (padding,) * 4)
        if thin.shape[2] >= r and thin.shape[3] >= s:
            mistakes["You skipped pixels of the image: a window sees all its pixels, and moves in larger steps."] = (
                columns(thin, r, s)
            )
    name = f"im2col(x {tuple(x.shape)}, {r}, {s}, stride={stride}, padding={padding})"
    why = "Row s·(r·c + i) + j and column Q p + q hold pixel (p·stride + i, q·stride + j) of channel c."
    checks.close(got, right, name=name, why=why, mistakes=mistakes)
