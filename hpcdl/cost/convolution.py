"""What a convolution costs by each algorithm: arithmetic and memory, equal to what the plain versions do.

`cost(algorithm, problem) -> Cost`. Counted are the operations of `ALGORITHMS[algorithm].plain`, the products with the
padding's zeros included; for real numbers, a complex product being four multiplications and two additions. Memory is
counted stage by stage: what a stage needs from the one before it is written once and read once.
"""

from collections.abc import Callable
from typing import NamedTuple

from hpcdl.conv.fft import least_size, power_of_two
from hpcdl.conv.problem import Problem
from hpcdl.conv.toeplitz import INDEX_BYTES


class Cost(NamedTuple):
    """Arithmetic operations, and bytes moved and needed.

    `products` are multiplications of data by data, which theory counts (Winograd 1980); `multiplications` are those
    and the ones by constants; `scratch` is memory beside x, w and y, `nbytes` all that is read and written.
    """

    products: int
    multiplications: int
    additions: int
    nbytes: int
    scratch: int

    @property
    def flops(self) -> int:
        return self.multiplications + self.additions


def cost(algorithm: str, problem: Problem, itemsize: int = 4) -> Cost:
    """The cost of a problem with numbers of `itemsize` bytes; raises ValueError for an unknown algorithm."""
    if algorithm not in COSTS:
        raise ValueError(f"algorithm is {algorithm!r}; it must be one of {', '.join(COSTS)}")
    return COSTS[algorithm](problem, itemsize)


def least_bytes(problem: Problem, itemsize: int = 4) -> int:
    """x and w read once, y written once."""
    N, K, P, Q = problem.y_shape
    depth = problem.C // problem.groups
    return itemsize * (N * problem.C * problem.H * problem.W + K * depth * problem.R * problem.S + N * K * P * Q)


def _cost(problem, itemsize, products, constants, additions, scratch) -> Cost:
    moved = least_bytes(problem, itemsize) + 2 * scratch
    return Cost(products, products + constants, additions, moved, scratch)


def _outputs(problem: Problem) -> int:
    return problem.N * problem.K * problem.P * problem.Q


def direct(problem: Problem, itemsize: int) -> Cost:
    """One multiplication for each output and tap, and no memory beside."""
    macs = problem.macs
    return _cost(problem, itemsize, macs, 0, macs - _outputs(problem), 0)


def im2col(problem: Problem, itemsize: int) -> Cost:
    """The arithmetic of `direct`, and a matrix of N C R S P Q numbers."""
    columns = problem.N * problem.C * problem.R * problem.S * problem.P * problem.Q
    return direct(problem, itemsize)._replace(
        nbytes=least_bytes(problem, itemsize) + 2 * itemsize * columns, scratch=itemsize * columns
    )


def toeplitz(problem: Problem, itemsize: int) -> Cost:
    """The arithmetic of `direct`, and a sparse matrix: every non-zero with its row and column."""
    rows = problem.K * problem.P * problem.Q
    nonzeros = rows * (problem.C // problem.groups) * problem.R * problem.S
    matrix = nonzeros * (itemsize + INDEX_BYTES)
    return direct(problem, itemsize)._replace(nbytes=least_bytes(problem, itemsize) + 2 * matrix, scratch=matrix)


class _Transform(NamedTuple):
    """Multiplications by constants and additions of a one-dimensional transform."""

    multiplications: int
    additions: int


# For m: of data (B^T), filter taps (G) and result (A^T), as `hpcdl.conv.winograd` writes them.
WINOGRAD_TRANSFORMS = {
    2: (_Transform(0, 4), _Transform(2, 3), _Transform(0, 4)),
    4: (_Transform(5, 12), _Transform(6, 6), _Transform(3, 10)),
}


def winograd(m: int, problem: Problem, itemsize: int) -> Cost:
    """(m + 2)^2 products a tile where `direct` has 9 m^2; each transform runs along the columns, then the rows.

    Raises ValueError for anything but 3 x 3 filters with stride 1.
    """
    if (problem.R, problem.S, problem.stride, problem.dilation) != (3, 3, 1, 1):
        raise ValueError(f"problem is {problem}; Winograd's algorithm is for 3 x 3 filters with stride 1, not dilated")
    side, depth = m + 2, problem.C // problem.groups
    tiles = problem.N * -(-problem.P // m) * -(-problem.Q // m)
    lines = (tiles * problem.C * 2 * side, problem.K * depth * (3 + side), tiles * problem.K * (side + m))
    transforms = WINOGRAD_TRANSFORMS[m]
    constants = sum(n * t.multiplications for n, t in zip(lines, transforms, strict=True))
    additions = sum(n * t.additions for n, t in zip(lines, transforms, strict=True))
    positions = tiles * problem.K * side**2  # of the products' results
    scratch = itemsize * side**2 * (tiles * problem.C + problem.K * depth + tiles * problem.K)
    return _cost(problem, itemsize, positions * depth, constants, additions + positions * (depth - 1), scratch)


def fft(problem: Problem, itemsize: int) -> Cost:
    """Three sets of radix-2 transforms, and at each frequency a complex matrix product."""
    a, b = (power_of_two(n) for n in least_size(problem))
    depth, half = problem.C // problem.groups, b // 2 + 1
    images, results = problem.N * problem.C + problem.K * depth, problem.N * problem.K
    # A transform of n numbers has n/2 log2 n butterflies: one complex product by a constant, two complex additions.
    butterflies = (images + results) * (a * (b // 2) * _log2(b) + half * (a // 2) * _log2(a))
    products = problem.N * problem.K * depth * a * half  # complex
    sums = problem.N * problem.K * (depth - 1) * a * half
    scratch = 2 * itemsize * a * half * (images + results)
    constants, additions = 4 * butterflies + _outputs(problem), 6 * butterflies + 2 * products + 2 * sums
    return _cost(problem, itemsize, 4 * products, constants, additions, scratch)


def _log2(n: int) -> int:
    return n.bit_length() - 1


COSTS: dict[str, Callable[[Problem, int], Cost]] = {
    "direct": direct,
    "im2col": im2col,
    "toeplitz": toeplitz,
    "winograd_2x2": lambda problem, itemsize: winograd(2, problem, itemsize),
    "winograd_4x4": lambda problem, itemsize: winograd(4, problem, itemsize),
    "fft": fft,
}
