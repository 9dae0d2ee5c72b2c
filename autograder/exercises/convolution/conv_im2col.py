"""The convolution as one product of matrices. Oracle: torch's, and a count of the products asked for."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.convolution.calls import STRIDES, called, check_convolution
from autograder.exercises.convolution.drawing import images, problems
from autograder.exercises.convolution.libraries import COLUMNS
from autograder.exercises.convolution.oracles import columns, conv
from autograder.exercises.convolution.products import Products, whole_count
from autograder.exercises.drawing import whole_number

exercise = Exercise("conv_im2col", points=5, minutes=8, uses=("im2col",), **COLUMNS)


@exercise.check(points=2)
def filters_times_columns(student, rng):
    "The filters as rows times the windows as columns give all outputs at once."
    for sizes in ((1, 1, 3, 3, 1, 2, 2), (1, 2, 4, 5, 3, 2, 3), (3, 2, 5, 4, 3, 2, 2), (2, 3, 4, 5, 2, 4, 5)):
        check_convolution(student.conv_im2col, rng, sizes, "conv_im2col(x, w)")
    check_convolution(student.conv_im2col, rng, (2, 3, 8, 8, 4, 1, 1), "conv_im2col(x, w)", torch.float32)
    made_by_a_product(student, rng)


MATRIX_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def made_by_a_product(student, rng) -> None:
    """Check that the outputs of one image come from one product of matrices, by matmul or, as yet, by torch's."""
    x, w = images(rng, 1, 2, 5, 4, 3, 2, 3)
    products, right = Products(factor=8.0), conv(x, w)
    with student.operations(*MATRIX_PRODUCTS) as counts:
        got = student.conv_im2col(x.clone(), w.clone(), matmul=products.matmul)
    if products.calls == 1:
        products.check_used(got, right, "conv_im2col")
        multiplies_filters_and_columns(products, x, w, right)
        return
    checks.that(
        products.calls + sum(counts.values()) == 1,
        "The outputs of one image come from one product of matrices, the filters as rows times the windows as "
        "columns: matmul(w.flatten(1), im2col(...)). Your function computes them in another way.",
    )


@exercise.check(points=1, needs="filters_times_columns")
def any_stride_and_padding(student, rng):
    "im2col handles stride and padding, and the number of outputs follows them."
    for options in STRIDES:
        check_convolution(student.conv_im2col, rng, (2, 2, 8, 7, 3, 3, 2), called("conv_im2col", options), **options)
    for sizes, stride, padding in problems(rng):
        options = {"stride": stride, "padding": padding}
        check_convolution(student.conv_im2col, rng, sizes, called("conv_im2col", options), **options)


@exercise.check(points=1, needs="filters_times_columns")
def one_matrix_product(student, rng):
    "All multiplications are in one product, with the function that is passed as matmul."
    for sizes in ((1, 2, 5, 5, 3, 3, 3), (4, 2, 6, 5, 3, 2, 3)):
        x, w = images(rng, *sizes)
        products, right = Products(factor=8.0), conv(x, w)
        got = student.conv_im2col(x.clone(), w.clone(), matmul=products.matmul)
        products.check_used(got, right, "conv_im2col")
        checks.that(
            products.calls == 1,
            f"matmul was called {products.calls} times for {len(x)} images: one product does all of it. im2col gives "
            "(N, C r s, P Q), and a matrix (K, C r s) multiplies all N of them in one call.",
            got=f"{products.calls} calls",
            expected="1 call",
        )
        wanted = whole_count(x, w)
        checks.equal(products.multiplications, wanted, name="the number of multiplications", why="N K P Q · C R S.")
        multiplies_filters_and_columns(products, x, w, right)


def multiplies_filters_and_columns(products: Products, x, w, right) -> None:
    """Check that the one product is of the numbers of w and of the columns, in any order of axes, and is the result."""
    ((a, b),) = products.pairs
    seen = columns(x, *w.shape[2:])
    theirs = (holds(a, w) and holds(b, seen)) or (holds(a, seen) and holds(b, w))
    checks.that(
        theirs and holds(torch.matmul(a, b), right),
        "The outputs are computed elsewhere: matmul multiplied other numbers than the filters and the windows of x. "
        "Give it the filters as rows, w.flatten(1), and what im2col returns, and return what it gives.",
        got=f"matmul of {show.shape(a)} and {show.shape(b)}",
    )


def holds(values: torch.Tensor, numbers: torch.Tensor) -> bool:
    """Whether `values` are `numbers` in any order and of any scale, each of them equally often."""
    times, rest = divmod(values.numel(), numbers.numel())
    ours, given = (each.double().flatten().sort().values for each in (numbers.repeat(max(times, 1), 1, 1, 1), values))
    return not rest and checks.alike(given / given.abs().max(), ours / ours.abs().max())


@exercise.check(points=1, needs="filters_times_columns")
def leaves_both_alone(student, rng):
    "x and w are the same after the call."
    sizes = (whole_number(rng, *ends) for ends in ((1, 3), (1, 3), (4, 7), (4, 7), (1, 4), (1, 3), (1, 3)))
    x, w = images(rng, *sizes)
    got = checks.leaves_alone(student.conv_im2col, x=x, w=w)
    checks.close(got, conv(x, w), name="conv_im2col(x, w)")
