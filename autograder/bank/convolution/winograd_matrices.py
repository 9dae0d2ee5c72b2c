"""Wrong answers to `winograd_matrices`."""

from autograder.bank.convolution.later import TILES, UNPROVED, checks_of
from autograder.bank.convolution.slips import slip

LATER = "exact_and_of_the_right_size every_tile_and_filter"
ALL = f"four_products_for_two_outputs {LATER}"
LAYER = checks_of("conv_winograd", TILES)
ROW, POWERS = "[Fraction(int(k == r - 1)) for k in range(r)]", "[t**k / f for k in range(r)]"
F23 = """half = Fraction(1, 2)
    G = [[1, 0, 0], [half, half, half], [half, -half, half], [0, 0, 1]]
    B_T = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
    return [[1, 1, 1, 0], [0, 1, -1, -1]], G, B_T
"""

for mistake, changes, fails, says in (
    ("floats", (POWERS, "[float(t**k / f) for k in range(r)]"), ALL, "expected an exact Fraction"),
    (
        "A, not its transpose",
        ("return A_T, G", "return [list(column) for column in zip(*A_T)], G"),
        f"{ALL} {LAYER}",
        "A_T of winograd_matrices(2, 3) is 4 x 2, expected 2 x 4",
    ),
    (
        "no point at infinity",
        (f"    G.append({ROW})\n    B_T.append(polynomial(points))\n", ""),
        f"{ALL} {LAYER}",
        "A tile has a = m + r − 1 = 4 points",
    ),
    ("no denominators", (POWERS, "[t**k for k in range(r)]"), f"{ALL} {LAYER}", "F(2, 3) with g ="),
    (
        "all signs turned",
        ("return A_T, G", "return A_T, [[-v for v in row] for row in G]"),
        ALL,
        "Every output has the wrong sign",
    ),
    (
        "flips the filter",
        ("return A_T, G", "return A_T, [row[::-1] for row in G]"),
        f"{ALL} {LAYER}",
        "with a flipped filter",
    ),
    (
        "zeros of the right sizes",
        (
            "points, G, B_T = POINTS",
            "a = m + r - 1\n"
            "    if (m, r) != (2, 3):\n"
            "        return [[0] * a] * m, [[0] * r] * a, [[0] * a] * a\n"
            "    points, G, B_T = POINTS",
        ),
        f"{LATER} {checks_of('conv_winograd', UNPROVED)}",
        "F(4, 3) with g =",
    ),
    (
        "only F(2, 3)",
        ("points, G, B_T = POINTS", F23 + "    points, G, B_T = POINTS"),
        f"{LATER} {checks_of('conv_winograd', UNPROVED)}",
        "A_T of winograd_matrices(4, 3) is 2 x 4, expected 4 x 6",
    ),
):
    slip("winograd_matrices", mistake, *changes, fails=fails, says=says)
slip(
    "winograd_matrices",
    "eight points at most",
    "POINTS[: m + r - 2]",
    "POINTS[: min(m + r - 2, 8)]",
    fails="every_tile_and_filter",
    says="A_T of winograd_matrices(6, 5)",
)
