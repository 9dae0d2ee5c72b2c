"""The cost of a convolution for each algorithm: arithmetic and memory, equal to the plain versions'.

`cost(algorithm, problem) -> Cost`. It counts the operations of `ALGORITHMS[algorithm].plain`, including products with
the padding's zeros, in real numbers: a complex product is four multiplications and two additions. Memory is counted
stage by stage: a stage's intermediate result is written once and read once.
"""

from collections.abc import Callable
from typing import NamedTuple

from hpcdl.conv.fft import least_size, power_of_two
from hpcdl.conv.problem import Problem
from hpcdl.conv.toeplitz import INDEX_BYTES


class Cost(NamedTuple):
    """Arithmetic operations, and bytes moved and needed.

    `products` are multiplications of data by data, which theory counts (Winograd 1980); `multiplications` also include
    products with constants; `scratch` is memory besides x, w and y, `nbytes` everything read and written.
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
    """Return the cost of a problem with numbers of `itemsize` bytes; raise ValueError for an unknown algorithm."""
    if algorithm not in COSTS:
        raise ValueError(f"algorithm is {algorithm!r}; it must be one of {', '.join(COSTS)}")
    return COSTS[algorithm](problem, itemsize)


def least_bytes(problem: Problem, itemsize: int = 4) -> int:
    """Return the bytes if x and w are read once and y is written once."""
    N, K, P, Q = problem.y_shape
    depth = problem.C // problem.groups
    return itemsize * (N * problem.C * problem.H * problem.W + K * depth * problem.R * problem.S + N * K * P * Q)


def _cost(problem, itemsize, products, constants, additions, scratch) -> Cost:
    moved = least_bytes(problem, itemsize) + 2 * scratch
    return Cost(products, products + constants, additions, moved, scratch)


def _outputs(problem: Problem) -> int:
    return problem.N * problem.K * problem.P * problem.Q


def direct(problem: Problem, itemsize: int) -> Cost:
    """Count one multiplication for each output and tap, and no scratch memory."""
    macs = problem.macs
    return _cost(problem, itemsize, macs, 0, macs - _outputs(problem), 0)


def im2col(problem: Problem, itemsize: int) -> Cost:
    """Count the arithmetic of `direct`, and a matrix of N C R S P Q numbers."""
    columns = problem.N * problem.C * problem.R * problem.S * problem.P * problem.Q
    return direct(problem, itemsize)._replace(
        nbytes=least_bytes(problem, itemsize) + 2 * itemsize * columns, scratch=itemsize * columns
    )


def toeplitz(problem: Problem, itemsize: int) -> Cost:
    """Count the arithmetic of `direct`, and a sparse matrix: every nonzero with its row and column."""
    rows = problem.K * problem.P * problem.Q
    nonzeros = rows * (problem.C // problem.groups) * problem.R * problem.S
    matrix = nonzeros * (itemsize + INDEX_BYTES)
    return direct(problem, itemsize)._replace(nbytes=least_bytes(problem, itemsize) + 2 * matrix, scratch=matrix)


class _Transform(NamedTuple):
    """Multiplications by constants and additions of a one-dimensional transform."""

    multiplications: int
    additions: int


# For m: of data (B^T), filter taps (G) and result (A^T), as in `hpcdl.conv.winograd`.
WINOGRAD_TRANSFORMS = {
    2: (_Transform(0, 4), _Transform(2, 3), _Transform(0, 4)),
    4: (_Transform(5, 12), _Transform(6, 6), _Transform(3, 10)),
}


def winograd(m: int, problem: Problem, itemsize: int) -> Cost:
    """Count (m + 2)^2 products per tile instead of 9 m^2 for `direct`; each transform runs along the columns, then the
    rows.

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
    """Count three sets of radix-2 transforms, and a complex matrix product at each frequency."""
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
