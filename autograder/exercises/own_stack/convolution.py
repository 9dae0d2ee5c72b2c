"""A convolution and its two gradients. Oracle: torch's convolution in float64, and autograd through it."""

import torch
from torch.nn import functional

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.convolution.libraries import LIBRARIES
from autograder.exercises.convolution.outputs import check_output
from autograder.exercises.drawing import F32, F64, normal
from autograder.exercises.ready_made import DERIVATIVES

exercise = Exercise(
    "convolution",
    points=20,
    minutes=25,
    extra=True,
    functions=("conv2d", "conv2d_input_grad", "conv2d_weight_grad"),
    forbid=(*LIBRARIES, *DERIVATIVES, "torch.autograd", "torch.nn.grad"),
    instead="Write yourself what this function does: the formula, as a loop over the places of the window.",
)

SIZES = (
    (1, 1, 4, 4, 1, 2, 2),
    (2, 3, 6, 5, 4, 3, 2),
    (3, 2, 5, 8, 3, 1, 3),
    (1, 2, 4, 4, 2, 4, 4),
    (2, 8, 6, 6, 3, 3, 3),
)


def drawn(rng, n, c, h, wd, k, r, s, dtype=F64) -> tuple:
    """Images, filters, and a gradient of the output."""
    return (
        normal(rng, n, c, h, wd, dtype=dtype),
        normal(rng, k, c, r, s, dtype=dtype),
        normal(rng, n, k, h - r + 1, wd - s + 1, dtype=dtype),
    )


def gradients(x, w, g) -> tuple:
    """Of images and filters, by autograd in float64."""
    leaves = [x.double().requires_grad_(), w.double().requires_grad_()]
    dx, dw = torch.autograd.grad(functional.conv2d(*leaves), leaves, g.double())
    return dx.to(x.dtype), dw.to(x.dtype)


def shapes(x, w, g) -> str:
    return f"x {tuple(x.shape)}, w {tuple(w.shape)}, g {tuple(g.shape)}"


def wrong_weight_grads(x, w, g) -> dict:
    """Known mistakes in the filters' gradient, by what to say of them."""
    _, dw = gradients(x, w, g)
    found = {
        "This is the mean over the images: the loss is already a mean, so sum.": dw / len(x),
        "The window is reversed: place (i, j) sees x[:, :, i : i + P, j : j + Q].": dw.flip(2, 3),
    }
    if len(x) > 1:
        found["Only the last image counts: sum over all n."] = gradients(x[-1:], w, g[-1:])[1]
    if w.shape[0] == w.shape[1]:
        found["K and C are swapped: dw is (K, C, R, S)."] = dw.transpose(0, 1)
    return found


def wrong_input_grads(x, w, g) -> dict:
    """Known mistakes in the images' gradient."""
    dx, _ = gradients(x, w, g)
    flipped, _ = gradients(x, w.flip(2, 3), g)
    found = {
        "The filter is reversed here: x[p + i, q + j] takes w[i, j] g[p, q], with the same i and j.": flipped,
        "You average over the filters: sum their parts.": dx / len(w),
    }
    last = torch.zeros_like(dx)
    (p, q), (i, j) = g.shape[2:], (w.shape[2] - 1, w.shape[3] - 1)
    last[:, :, i : i + p, j : j + q] = torch.einsum("kc,nkpq->ncpq", w[:, :, i, j], g)
    overwritten = dx.clone() * 0
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            overwritten[:, :, i : i + p, j : j + q] = torch.einsum("kc,nkpq->ncpq", w[:, :, i, j], g)
    found["Each place overwrites the others: windows overlap, so add to what is there."] = overwritten
    return found


@exercise.check(points=5)
def the_convolution(student, rng):
    "y is the sum over channels and the window; images and filters keep apart."
    for size in SIZES:
        x, w, _ = drawn(rng, *size)
        check_output(student.conv2d(x.clone(), w.clone()), x, w, name="conv2d(x, w)")
    x, w, _ = drawn(rng, 4, 3, 8, 8, 5, 3, 3, dtype=F32)
    check_output(student.conv2d(x.clone(), w.clone()), x, w, name="conv2d(x, w)")


@exercise.check(points=6)
def the_filters_gradient(student, rng):
    "Every place of the window takes the products of g with what it saw, summed over images and outputs."
    for size in SIZES:
        x, w, g = drawn(rng, *size)
        got = student.conv2d_weight_grad(g.clone(), x.clone())
        _, expected = gradients(x, w, g)
        checks.close(
            got, expected, name="conv2d_weight_grad(g, x)", why=shapes(x, w, g), mistakes=wrong_weight_grads(x, w, g)
        )


@exercise.check(points=6)
def the_images_gradient(student, rng):
    "Every pixel adds g of all windows that saw it, each times its weight there."
    for size in SIZES:
        x, w, g = drawn(rng, *size)
        got = student.conv2d_input_grad(g.clone(), w.clone())
        expected, _ = gradients(x, w, g)
        checks.close(
            got, expected, name="conv2d_input_grad(g, w)", why=shapes(x, w, g), mistakes=wrong_input_grads(x, w, g)
        )


@exercise.check(points=2, needs=("the_filters_gradient", "the_images_gradient"))
def in_float32(student, rng):
    "float32 in, float32 out: the gradients that the ranks send."
    x, w, g = drawn(rng, 4, 3, 8, 8, 5, 3, 3, dtype=F32)
    dx, dw = gradients(x, w, g)
    checks.close(student.conv2d_input_grad(g.clone(), w.clone()), dx, name="conv2d_input_grad(g, w)")
    checks.close(student.conv2d_weight_grad(g.clone(), x.clone()), dw, name="conv2d_weight_grad(g, x)")


@exercise.check(points=1, needs=("the_convolution", "the_filters_gradient", "the_images_gradient"))
def leaves_all_alone(student, rng):
    "x, w and g do not change."
    for size in SIZES:  # as in the other checks
        x, w, g = stay = drawn(rng, *size)
        kept = [t.clone() for t in stay]
        y, dx, dw = student.conv2d(x, w), student.conv2d_input_grad(g, w), student.conv2d_weight_grad(g, x)
        for name, now, then in zip("xwg", stay, kept, strict=True):
            checks.unchanged(now, then, name=name)
        check_output(y, x, w, name="conv2d(x, w)")
        for name, got, right in zip(("input_grad(g, w)", "weight_grad(g, x)"), (dx, dw), gradients(*stay), strict=True):
            checks.close(got, right, name=f"conv2d_{name}", why=shapes(*stay))
    x, w, g = drawn(rng, 2, 2, 4, 4, 2, 2, 2)
    before = [t.clone() for t in (x, w, g)]
    y, dx, dw = student.conv2d(x, w), student.conv2d_input_grad(g, w), student.conv2d_weight_grad(g, x)
    for name, now, then in zip("xwg", (x, w, g), before, strict=True):
        checks.unchanged(now, then, name=name)
    check_output(y, x, w, name="conv2d(x, w)")
    for got, right, name in zip((dx, dw), gradients(x, w, g), ("input_grad(g, w)", "weight_grad(g, x)"), strict=True):
        checks.close(got, right, name=f"conv2d_{name}", why=shapes(x, w, g))
