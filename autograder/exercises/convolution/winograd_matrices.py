"""Winograd's matrices for any tile and filter. Oracle: the convolution of unit vectors, in exact fractions."""

from fractions import Fraction

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number

exercise = Exercise("winograd_matrices", points=10, minutes=15, extra=True)


def ask_matrices(student, m: int, r: int):
    """(A^T, G, B^T) as lists of rows, each of the right size and exact."""
    a, call = m + r - 1, f"winograd_matrices({m}, {r})"
    got = student.winograd_matrices(m, r)
    checks.that(
        type(got) in (tuple, list) and len(got) == 3,
        f"{call} returned {show.an(show.type_name(got))}, expected three matrices: `return A_T, G, B_T`.",
        got=got,
    )
    for rows, name, shape in zip(got, ("A_T", "G", "B_T"), ((m, a), (a, r), (a, a)), strict=True):
        checks.that(
            type(rows) in (tuple, list) and all(type(row) in (tuple, list) for row in rows),
            f"{name} of {call} is {show.an(show.type_name(rows))}, expected a list of rows.",
            got=rows,
        )
        sizes = (len(rows), *sorted({len(row) for row in rows}))
        checks.that(
            sizes == shape,
            f"{name} of {call} is {' x '.join(map(str, sizes))}, expected {shape[0]} x {shape[1]}. "
            f"A tile has a = m + r − 1 = {a} points.",
            got=rows,
        )
        check_exact(rows, name, call)
    return got


def check_exact(rows, name: str, call: str) -> None:
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            checks.that(
                type(value) in (int, Fraction),
                f"{name}[{i}][{j}] of {call} is {show.an(show.type_name(value))}, expected an exact Fraction: "
                "Fraction(1, 2), not 0.5. Dividing two ints gives a float; dividing a Fraction stays exact.",
                got=value,
            )
            checks.that(
                checks.is_exact(value),
                f"{name}[{i}][{j}] of {call} is {show.show(value)}: the points are small numbers, so the entries are "
                "short fractions.",
            )


def by_matrices(A_T, G, B_T, g, d) -> list:
    """A^T [(G g) * (B^T d)], exactly."""
    products = [x * y for x, y in zip(times(G, g), times(B_T, d), strict=True)]
    return times(A_T, products)


def times(rows, vector) -> list:
    return [sum(x * y for x, y in zip(row, vector, strict=True)) for row in rows]


def unit(n: int, i: int) -> list[int]:
    return [int(k == i) for k in range(n)]


def check_identity(matrices, m: int, r: int) -> None:
    """Both sides are linear in g and in d: equal on all unit vectors is equal everywhere."""
    a = m + r - 1
    pairs = [(k, j) for k in range(r) for j in range(a)]
    A_T, G, B_T = matrices
    got = {pair: by_matrices(A_T, G, B_T, unit(r, pair[0]), unit(a, pair[1])) for pair in pairs}
    right = {(k, j): [int(j == i + k) for i in range(m)] for k, j in pairs}
    named = {
        "It computes the convolution with a flipped filter, expected y_i = Σ g_k d_(i + k).": {
            (k, j): right[r - 1 - k, j] for k, j in pairs
        },
        "Every output has the wrong sign: check the signs of the denominators.": {
            pair: [-x for x in value] for pair, value in right.items()
        },
    }
    sentence = next((sentence for sentence, value in named.items() if value == got), "")
    k, j = next((pair for pair in pairs if got[pair] != right[pair]), (0, 0))
    setting = f"F({m}, {r}) with g = {unit(r, k)} and d = {unit(a, j)}"
    checks.that(
        got == right,
        f"{sentence} {setting}: A^T[(G g) ⊙ (B^T d)] is not the convolution.".lstrip(),
        got=", ".join(map(str, got[k, j])),
        expected=", ".join(map(str, right[k, j])),
        why="y_i = Σ_k g_k d_(i + k). Both sides are linear, so it is enough to test unit vectors.",
    )


def some_sizes(rng) -> tuple[int, int]:
    """(m, r) of a tile of 3 to 5 outputs and a filter of 3 to 5."""
    return whole_number(rng, 3, 5), whole_number(rng, 3, 5)


@exercise.check(points=4)
def four_products_for_two_outputs(student, rng):
    "F(2, 3): two outputs of a filter of three from four products, exactly."
    check_identity(ask_matrices(student, 2, 3), 2, 3)


@exercise.check(points=2, needs="four_products_for_two_outputs")
def exact_and_of_the_right_size(student, rng):
    "A^T is m x a, G a x r, B^T a x a with a = m + r − 1, and every entry is an exact fraction."
    for m, r in ((2, 3), (4, 3), some_sizes(rng)):
        check_identity(ask_matrices(student, m, r), m, r)


@exercise.check(points=4, needs="four_products_for_two_outputs")
def every_tile_and_filter(student, rng):
    "F(m, r) for tiles of 1 to 6 outputs and filters of 1 to 5: an identity in exact fractions."
    for m, r in ((4, 3), (3, 2), (2, 2), (6, 3), (2, 5), (1, 3), (3, 1), (1, 1), (6, 5), some_sizes(rng)):
        check_identity(ask_matrices(student, m, r), m, r)
