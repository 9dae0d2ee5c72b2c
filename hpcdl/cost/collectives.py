"""The exact cost of collectives: seconds and traffic of each algorithm in `hpcdl.collectives`.

Every formula is `f(p, nbytes, alpha, beta, gamma=0.0, *, itemsize=4) -> seconds` for p ranks and a message of
`nbytes` with elements of `itemsize`: the virtual time of the simulated machine for that algorithm, uneven chunks and
all. A message of n bytes takes alpha + n beta; a rank sends one and receives one at a time; reducing n bytes takes n
gamma. Where n is not divisible by p the largest chunk, ceil(n / p), sets the pace: it meets every other rank. All
raise ValueError for p < 1, for bytes that are not a whole number of elements, and for negative seconds or NaN.
`hpcdl.cost.textbook` has the forms with n / p and log p.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .work import check_numbers


class Traffic(NamedTuple):
    """Everything that crosses the network, summed over the ranks."""

    messages: int
    nbytes: int


INFINITE = float("inf")


def _elements(p: int, nbytes: float, itemsize: int, alpha: float, beta: float, gamma: float = 0.0) -> int:
    """Return the elements of a message; raise ValueError for numbers that no machine has, NaN among them."""
    if not (0 <= alpha < INFINITE and 0 <= beta < INFINITE and 0 <= gamma < INFINITE):
        check_numbers(alpha=alpha, beta=beta, gamma=gamma)
    if not 1 <= p < INFINITE or p != int(p):
        raise ValueError(f"p is {p!r}; the number of ranks is an integer from 1")
    if not 0 <= nbytes < INFINITE or nbytes % itemsize:
        raise ValueError(f"nbytes is {nbytes!r}; whole elements are multiples of itemsize, which is {itemsize}")
    return int(nbytes) // itemsize


def _largest(elements: int, parts: int, itemsize: int) -> int:
    """Return the bytes of the largest of `parts` nearly equal chunks."""
    return -(-elements // parts) * itemsize


def rounds(p: int) -> int:
    """ceil(log2 p): how often a message must double to reach p ranks."""
    return (int(p) - 1).bit_length()


# -- parts ------------------------------------------------------------------------------------------------------------


def broadcast(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """ceil(log2 p) (alpha + n beta): in each round every rank that has it sends it to one that does not."""
    _elements(p, nbytes, itemsize, alpha, beta, gamma)
    return rounds(p) * (alpha + nbytes * beta)


def reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """ceil(log2 p) (alpha + n beta + n gamma): a reversed broadcast that adds."""
    _elements(p, nbytes, itemsize, alpha, beta, gamma)
    return rounds(p) * (alpha + nbytes * (beta + gamma))


def all_gather(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """(p-1) (alpha + m beta) with m = ceil(n/p): chunks around the ring; n is their total size."""
    m = _largest(_elements(p, nbytes, itemsize, alpha, beta, gamma), p, itemsize)
    return (p - 1) * (alpha + m * beta)


def reduce_scatter(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """(p-1) (alpha + m beta + m gamma) with m = ceil(n/p): chunks around the ring, summed on the way."""
    m = _largest(_elements(p, nbytes, itemsize, alpha, beta, gamma), p, itemsize)
    return (p - 1) * (alpha + m * (beta + gamma))


def scatter(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4, root: int = 0
) -> float:
    """ceil(log2 p) alpha + about (p-1)/p n beta: halves of the chunks, then halves of those (Chan et al. 2007).

    It follows the longest path from the root to a rank, exactly. Raises ValueError for a `root` that is not a rank.
    """
    elements = _elements(p, nbytes, itemsize, alpha, beta, gamma)
    if not 0 <= root < p:
        raise ValueError(f"root is {root!r}; ranks are 0 to {p - 1}")

    def size(first: int, last: int) -> int:
        return itemsize * ((last - first) * (elements // p) + max(0, min(last, elements % p) - first))

    def longest(first: int, last: int, holder: int) -> float:
        if last - first == 1:
            return 0.0
        middle = (first + last + 1) // 2
        near, far = ((first, middle), (middle, last)) if holder < middle else ((middle, last), (first, middle))
        return alpha + size(*far) * beta + max(longest(*near, holder), longest(*far, far[0]))

    return longest(0, int(p), root)


def gather(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4, root: int = 0
) -> float:
    """Like `scatter`: the same messages in reverse."""
    return scatter(p, nbytes, alpha, beta, gamma, itemsize=itemsize, root=root)


def all_to_all(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """(p-1) (alpha + m beta) with m = ceil(n/p): pairwise exchange of equal shares of each rank's n bytes.

    `itemsize` is the bytes of a row, which stays whole.
    """
    return all_gather(p, nbytes, alpha, beta, gamma, itemsize=itemsize)


def unequal_all_to_all(
    counts: Sequence[Sequence[int]], alpha: float, beta: float, *, itemsize: int = 4, known: bool = True
) -> float:
    """Pairwise exchange of `counts[r][s]` rows of `itemsize` bytes from rank r to rank s, all ranks at once.

    A rank begins a round when it has finished the previous one, and a message starts when both its ranks have begun:
    the rank with the most data sets the pace. Without out_counts (`known=False`) the counts go first, 8 bytes each.
    Raises ValueError unless `counts` is p lists of p.
    """
    check_numbers(alpha=alpha, beta=beta)
    p = len(counts)
    if any(len(row) != p for row in counts):
        raise ValueError(f"counts has rows of {[len(row) for row in counts]}; {p} ranks have {p} rows of {p} counts")
    clocks = [0.0 if known else all_to_all(p, 8 * p, alpha, beta, itemsize=8)] * p
    for distance in range(1, p):
        ends = [  # of each rank's messages
            max(clocks[r], clocks[(r + distance) % p]) + (alpha + itemsize * counts[r][(r + distance) % p] * beta)
            for r in range(p)
        ]
        clocks = [max(ends[r], ends[r - distance]) for r in range(p)]
    return max(clocks)


# -- all-reduce -------------------------------------------------------------------------------------------------------


def naive(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """2(p-1)(alpha + n beta) + (p-1) n gamma: one after another through rank 0."""
    _elements(p, nbytes, itemsize, alpha, beta, gamma)
    return (p - 1) * (2 * (alpha + nbytes * beta) + nbytes * gamma)


def ring(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """2(p-1)(alpha + m beta) + (p-1) m gamma with m = ceil(n/p) (Patarasuk and Yuan 2009)."""
    return reduce_scatter(p, nbytes, alpha, beta, gamma, itemsize=itemsize) + all_gather(
        p, nbytes, alpha, beta, itemsize=itemsize
    )


def tree(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """ceil(log2 p) (2 alpha + 2 n beta + n gamma): reduce to the root, broadcast from it."""
    _elements(p, nbytes, itemsize, alpha, beta, gamma)
    return rounds(p) * (2 * (alpha + nbytes * beta) + nbytes * gamma)


def recursive_doubling(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4
) -> float:
    """log2 q (alpha + n beta + n gamma), q the largest power of two up to p; plus folding the other p - q.

    Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH".
    """
    _elements(p, nbytes, itemsize, alpha, beta, gamma)
    k = int(p).bit_length() - 1
    return k * (alpha + nbytes * (beta + gamma)) + _folding(p, nbytes, alpha, beta, gamma)


def rabenseifner(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4) -> float:
    """2 log2 q alpha + 2 s beta + s gamma, s about (q-1)/q n: halving, then doubling; plus folding p - q ranks.

    Source: Rabenseifner 2004, "Optimization of collective reduction operations".
    """
    n, k = _elements(p, nbytes, itemsize, alpha, beta, gamma), int(p).bit_length() - 1
    q = 1 << k
    # Rank 0 keeps the first 2^j chunks in round j, and the first n mod q chunks are the longer ones.
    s = itemsize * sum((n // q) * (1 << j) + min(n % q, 1 << j) for j in range(k))
    return 2 * k * alpha + 2 * s * beta + s * gamma + _folding(p, nbytes, alpha, beta, gamma)


def _folding(p, nbytes, alpha, beta, gamma):
    """Return the cost for ranks beyond the largest power of two: they send their data before, and get the sum
    afterwards."""
    return 0.0 if int(p).bit_count() == 1 else 2 * (alpha + nbytes * beta) + nbytes * gamma


def parameter_server(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0, *, itemsize: int = 4, servers: int = 1
) -> float:
    """2(p-1)(alpha + m beta) + (p-1) m gamma with m = ceil(n / servers): each server owns a share of the sums.

    Raises ValueError unless 1 <= servers <= p.
    """
    elements = _elements(p, nbytes, itemsize, alpha, beta, gamma)
    if not 1 <= servers <= p:
        raise ValueError(f"servers is {servers}; each server is one of the ranks: 1 to {p}")
    m = _largest(elements, servers, itemsize)
    return (p - 1) * (2 * (alpha + m * beta) + m * gamma)


def hierarchical(
    p: int,
    nbytes: float,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
    *,
    itemsize: int = 4,
    per_node: int = 4,
    within: tuple[float, float] | None = None,
) -> float:
    """Tree inside each node of `per_node` ranks, ring between one rank of each; `within` = (alpha, beta) inside a node.

    ceil(log2 k) (2 alpha + 2 n beta + n gamma) + ring(g), with k ranks in a node and g = ceil(p/k) nodes. `within` is
    (alpha, beta) of the links inside a node; without it all links are equal. Raises ValueError for `per_node` < 1.
    """
    if per_node < 1:
        raise ValueError(f"per_node is {per_node}; a node has one rank or more")
    nodes = -(-p // per_node)
    inside = tree(min(per_node, p), nbytes, *(within or (alpha, beta)), gamma, itemsize=itemsize)
    return inside + ring(nodes, nbytes, alpha, beta, gamma, itemsize=itemsize)


ALL_REDUCE: dict[str, Callable[..., float]] = {
    "naive": naive,
    "ring": ring,
    "tree": tree,
    "recursive_doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "parameter_server": parameter_server,
    "hierarchical": hierarchical,
}


def formula(name: str) -> Callable[..., float]:
    """Return the formula of an all-reduce by name; raise ValueError for a name not in `ALL_REDUCE`."""
    if name not in ALL_REDUCE:
        raise ValueError(f"algorithm is {name!r}; the all-reduce algorithms are {', '.join(ALL_REDUCE)}")
    return ALL_REDUCE[name]


# -- traffic ----------------------------------------------------------------------------------------------------------


def _folded(p, nbytes, messages, volume):
    q = 1 << (int(p).bit_length() - 1)
    return Traffic(messages + 2 * (p - q), volume + 2 * (p - q) * nbytes)


def _doubling_traffic(p, nbytes):
    k = int(p).bit_length() - 1
    return _folded(p, nbytes, k << k, (k << k) * nbytes)


def _rabenseifner_traffic(p, nbytes):
    k = int(p).bit_length() - 1
    return _folded(p, nbytes, 2 * k << k, 2 * ((1 << k) - 1) * nbytes)


def _hierarchical_traffic(p, nbytes, per_node=4):
    nodes = -(-p // per_node)
    return Traffic(2 * (p - nodes) + 2 * nodes * (nodes - 1), 2 * (p - 1) * nbytes)


# `f(p, nbytes) -> Traffic`. However uneven the chunks, their sum is n: totals are exact.
TRAFFIC: dict[str, Callable[..., Traffic]] = {
    "naive": lambda p, nbytes: Traffic(2 * (p - 1), 2 * (p - 1) * nbytes),
    "ring": lambda p, nbytes: Traffic(2 * p * (p - 1), 2 * (p - 1) * nbytes),
    "tree": lambda p, nbytes: Traffic(2 * (p - 1), 2 * (p - 1) * nbytes),
    "recursive_doubling": _doubling_traffic,
    "rabenseifner": _rabenseifner_traffic,
    "parameter_server": lambda p, nbytes, servers=1: Traffic(2 * servers * (p - 1), 2 * (p - 1) * nbytes),
    "hierarchical": _hierarchical_traffic,
}
