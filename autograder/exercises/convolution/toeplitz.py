"""The matrix of a convolution. Oracle: what torch's convolution makes of each image with a single 1."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.convolution.drawing import problems, whole
from autograder.exercises.convolution.libraries import MATRIX
from autograder.exercises.convolution.oracles import conv
from autograder.exercises.drawing import F64, normal

exercise = Exercise("toeplitz", points=5, minutes=10, **MATRIX)


def matrix(w, h: int, wd: int) -> torch.Tensor:
    """The matrix of the convolution, column by column: what it makes of each image with a single 1."""
    units = torch.eye(h * wd, dtype=F64).view(h * wd, 1, h, wd)
    return conv(units, w.double()[None, None]).flatten(1).T.to(w.dtype)


def toeplitz_mistakes(w, h: int, wd: int) -> dict:
    r, s = w.shape
    mistakes = {
        "T is transposed: it has a row for each output and a column for each pixel.": lambda: matrix(w, h, wd).T,
        "The kernel is flipped: row (p, q) has w[i, j] in the column of pixel (p + i, q + j).": lambda: matrix(
            w.flip(0, 1), h, wd
        ),
        "The rows continue over the end of a line: an output whose window would leave the image does not exist.": (
            lambda: every_shift(w, h, wd)
        ),
        "The window wraps around the border: there are (h − R + 1)(wd − S + 1) outputs, where the window fits.": (
            lambda: circulant(w, h, wd)
        ),
        "x.ravel() goes along the rows: pixel (i, j) is entry i · wd + j, not j · h + i.": lambda: (
            matrix(w, h, wd).view(-1, h, wd).transpose(1, 2).reshape(-1, h * wd)
        ),
    }
    if r == s:
        mistakes["w is transposed."] = lambda: matrix(w.T, h, wd)
    return mistakes


def every_shift(w, h: int, wd: int) -> torch.Tensor:
    """One row for every place where the unrolled kernel fits into the unrolled image, line ends or not."""
    first = matrix(w, h, wd)[0]
    last = int(first.nonzero().max()) if first.any() else 0
    return torch.stack([first.roll(i) for i in range(h * wd - last)])


def circulant(w, h: int, wd: int) -> torch.Tensor:
    """The matrix of the circular convolution: a row for each pixel."""
    kernel = torch.zeros(h, wd, dtype=w.dtype)
    kernel[: w.shape[0], : w.shape[1]] = w
    return torch.stack([kernel.roll((p, q), (0, 1)).flatten() for p in range(h) for q in range(wd)])


def ask_toeplitz(student, w, h: int, wd: int) -> torch.Tensor:
    got = student.toeplitz(w.clone(), h, wd)
    checks.close(
        got,
        matrix(w, h, wd),
        name=f"toeplitz(w {tuple(w.shape)}, {h}, {wd})",
        why="Row q + Q p has w[i, j] at column (p + i) · wd + (q + j), and zeros elsewhere.",
        mistakes=toeplitz_mistakes(w, h, wd),
        rtol=0.0,
        atol=0.0,
    )
    return got


@exercise.check(points=2)
def the_lectures_matrix(student, rng):
    "A 2x2 kernel over a 3x3 image is the lecture's matrix of 4 rows and 9 columns."
    four = torch.tensor([2.5, 3.0, 5.0, 7.0], dtype=F64)[torch.randperm(4, generator=rng)]
    ask_toeplitz(student, four.view(2, 2), 3, 3)


@exercise.check(points=1, needs="the_lectures_matrix")
def any_kernel_and_image(student, rng):
    "T @ x.ravel() is the convolution, for rectangular kernels and images, 1x1 and as large as the image."
    drawn = [(r, s, h, wd) for (_, _, h, wd, _, r, s), *_ in problems(rng)]
    for r, s, h, wd in ((2, 2, 4, 5), (2, 3, 5, 4), (3, 1, 4, 6), (1, 1, 3, 4), (3, 4, 3, 4), (1, 3, 1, 5), *drawn):
        w, x = normal(rng, r, s), whole(rng, h, wd)
        T = ask_toeplitz(student, w, h, wd)
        expected = conv(x[None, None], w[None, None]).flatten()
        checks.close(T @ x.flatten(), expected, name="T @ x.ravel()")


@exercise.check(points=1, needs="the_lectures_matrix")
def mostly_zeros(student, rng):
    "Every row has R S numbers that are not zero; all others are exactly zero, and the dtype is w's."
    for dtype in (F64, torch.float32):
        w = normal(rng, 3, 2, dtype=dtype)
        T = ask_toeplitz(student, w, 6, 5)
        checks.equal((T != 0).sum(dim=1).tolist(), [6] * (4 * 4), name="the non-zeros of each row")


@exercise.check(points=1, needs="the_lectures_matrix")
def its_transpose_goes_back(student, rng):
    "Tᵀ times the gradient of the outputs is the gradient of the image."
    for r, s, h, wd in ((2, 2, 3, 3), (3, 2, 5, 6)):
        w, dy = normal(rng, r, s), whole(rng, h - r + 1, wd - s + 1)
        x = torch.zeros(1, 1, h, wd, dtype=F64, requires_grad=True)
        (expected,) = torch.autograd.grad(conv(x, w[None, None]), x, dy[None, None])
        T = student.toeplitz(w.clone(), h, wd)
        checks.tensor(T, name="toeplitz(w, h, wd)", shape=((h - r + 1) * (wd - s + 1), h * wd), dtype=F64)
        checks.close(
            T.T @ dy.flatten(), expected.flatten(), name="T.T @ dy.ravel()", why="y = T x, so ∂L/∂x = Tᵀ ∂L/∂y."
        )
