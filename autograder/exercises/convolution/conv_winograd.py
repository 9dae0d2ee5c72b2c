"""The convolution by Winograd's algorithm. Oracle: torch's, and a count of the products asked for."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.convolution.calls import called
from autograder.exercises.convolution.drawing import Sizes, images, problems
from autograder.exercises.convolution.libraries import OWN
from autograder.exercises.convolution.oracles import conv
from autograder.exercises.convolution.outputs import check_output
from autograder.exercises.convolution.products import Products, whole_count
from autograder.exercises.convolution.rows_of_tiles import made_of_products
from autograder.exercises.drawing import F64

exercise = Exercise("conv_winograd", points=10, minutes=15, extra=True, uses=("winograd_matrices",), **OWN)


def check_winograd(student, rng, sizes: Sizes, dtype=F64, **options):
    x, w = images(rng, *sizes, dtype=dtype)
    got = student.conv_winograd(x.clone(), w.clone(), **options)
    check_output(got, x, w, name=called("conv_winograd", options), extra=tiling_mistakes(x, w, **options))


def tiling_mistakes(x, w, m: int = 2) -> dict:
    """What comes out without the tiles at the border, or when (N, K, rows, columns, m, m) are reshaped as they are."""
    y = conv(x, w)
    p, q = y.shape[2:]
    if p % m or q % m:
        sentence = (
            "The tiles at the border are missing: put zeros on the right and below until all tiles are whole, and cut "
            "off the outputs beyond P and Q."
        )
        return {sentence: y[..., : p // m * m, : q // m * m]}
    sentence = "The tiles are not joined: bring the axes into the order (N, K, rows, m, columns, m), then reshape."
    return {sentence: y.unfold(2, m, m).unfold(3, m, m).reshape(y.shape)}


@exercise.check(points=3)
def whole_tiles(student, rng):
    "Outputs that fall into whole tiles of 2x2: one tile, then many, then channels and images."
    for sizes in ((1, 1, 4, 4, 1, 3, 3), (1, 1, 6, 8, 1, 3, 3), (2, 3, 8, 6, 4, 3, 3)):
        check_winograd(student, rng, sizes)
    check_winograd(student, rng, (2, 3, 10, 8, 4, 3, 3), torch.float32)
    x, w = images(rng, 1, 2, 6, 6, 2, 3, 3)
    check_output(checks.leaves_alone(student.conv_winograd, x=x, w=w), x, w, name="conv_winograd(x, w)")


def counted_winograd(student, rng, sizes, m: int):
    """A counted run: `(x, w, products, tiles)`; sizes fall into whole tiles."""
    x, w = images(rng, *sizes)
    products = Products(factor=4.0)
    got, right = student.conv_winograd(x, w, m, matmul=products.matmul), conv(x, w)
    products.check_used(got, right, "conv_winograd")
    return x, w, products, len(x) * (right.shape[2] // m) * (right.shape[3] // m)


COUNTED = ((2, (1, 1, 4, 4, 1, 3, 3)), (2, (2, 3, 8, 6, 4, 3, 3)), (4, (1, 2, 10, 10, 3, 3, 3)))


@exercise.check(points=2, needs="whole_tiles")
def sixteen_multiplications(student, rng):
    "A tile of 2x2 outputs costs 16 multiplications for each pair of channels, while the direct way takes 36."
    for m, sizes in COUNTED:
        x, w, products, tiles = counted_winograd(student, rng, sizes, m)
        a, direct = m + 2, whole_count(x, w)
        wanted = tiles * a * a * w.shape[0] * w.shape[1]
        reason = "as many as the direct way" if products.multiplications == direct else "not that of Winograd"
        checks.that(
            products.multiplications == wanted,
            f"{products.multiplications:,} multiplications for {tiles} tiles of {m}x{m}, {reason}: expected "
            f"{wanted:,}, {a}² for each tile, filter and channel. matmul gets only the transformed filters and tiles.",
            got=f"{products.multiplications:,} multiplications",
            expected=f"{wanted:,} (the direct way: {direct:,})",
        )
    for m in (2, 4):
        made_of_products(student, rng, m, 3)


@exercise.check(points=2, needs="sixteen_multiplications")
def tiles_that_stick_out(student, rng):
    "Outputs that are not a multiple of m: pad the image with zeros, and cut off the surplus outputs."
    for sizes in ((1, 1, 5, 5, 1, 3, 3), (2, 2, 7, 6, 3, 3, 3), (1, 2, 3, 3, 2, 3, 3), (1, 1, 4, 9, 1, 3, 3)):
        check_winograd(student, rng, sizes)
    made_of_products(student, rng, 2, 3, ragged=True)


@exercise.check(points=1, needs="sixteen_multiplications")
def larger_tiles_and_filters(student, rng):
    "m = 4, m = 3 and m = 1, filters of 5x5 and 2x2: the matrices change, the algorithm does not."
    for m, sizes in (
        (4, (1, 2, 9, 11, 2, 3, 3)),
        (3, (1, 1, 8, 8, 2, 2, 2)),
        (2, (1, 1, 8, 9, 1, 5, 5)),
        (1, (1, 1, 4, 5, 1, 3, 3)),
    ):
        check_winograd(student, rng, sizes, m=m)
    for (n, c, h, w, k, r, _), m, _ in problems(rng):
        check_winograd(student, rng, (n, c, h + 1, max(w, r) + 1, k, r, r), m=m)
    for m, r in ((3, 2), (1, 3), (2, 5)):
        made_of_products(student, rng, m, r, ragged=True)


@exercise.check(points=2, needs="sixteen_multiplications")
def each_filter_is_transformed_once(student, rng):
    "The transformed filters enter the product once, for all tiles together: not again for each tile."
    for m, sizes in COUNTED[1:]:
        _, w, products, tiles = counted_winograd(student, rng, sizes, m)
        k, c = w.shape[:2]
        once, each = (m + 2) ** 2 * (k * c + c * tiles), (m + 2) ** 2 * (k * c * tiles + c * tiles)
        checks.that(
            2 * products.operands < once + each,
            f"{products.operands:,} numbers went into matmul: the transformed filters are there again for each of the "
            f"{tiles} tiles. A filter's transform does not depend on the tile: compute U once, and multiply it "
            "with all tiles in one batched product, (a², K, C) @ (a², C, tiles).",
            got=f"{products.operands:,} numbers, in {products.calls} call{'s' * (products.calls != 1)}",
            expected=f"{once:,} numbers: {(m + 2) ** 2 * k * c:,} of filters and {(m + 2) ** 2 * c * tiles:,} of tiles",
        )
