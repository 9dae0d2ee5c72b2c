"""Gossip: no server and no all-reduce. Each rank averages with its neighbours, and all of them come close to the mean.

    x_i <- the sum over j of W_ij x_j,   W_ij = 1 / (1 + max(d_i, d_j)) for neighbours,   W_ii = 1 - the sum of those

d are the numbers of neighbours (Metropolis weights: Xiao, Boyd and Kim 2007). W is symmetric and its rows add up to 1,
so the mean stays, and the distance from it shrinks in each round to at most 1 - gap of what it was, `gap` being the
spectral gap of W. Training by it: Lian et al. 2017, "Can decentralized algorithms outperform centralized algorithms?".
"""

import math
import random
from collections.abc import Callable

import numpy as np
import torch

from hpcdl.comm import Communicator

Edges = list[tuple[int, int]]  # pairs of ranks (i, j), i < j, that send to each other


def ring(p: int, number: int = 0) -> Edges:
    """Return each rank and the next one."""
    return sorted({(min(i, (i + 1) % p), max(i, (i + 1) % p)) for i in range(p) if p > 1})


def wheel(p: int, number: int = 0) -> Edges:
    """Return a ring of ranks 1 to p - 1, and rank 0, the hub, beside each of them."""
    return [(0, i) for i in range(1, p)] + [(i + 1, j + 1) for i, j in ring(p - 1)]


def random_peers(p: int, number: int = 0) -> Edges:
    """New pairs in each round, drawn from its `number`; where p is odd one rank stays alone (Boyd et al. 2006)."""
    ranks = list(range(p))
    random.Random(number).shuffle(ranks)
    return sorted((min(pair), max(pair)) for pair in zip(ranks[::2], ranks[1::2], strict=False))


def everyone(p: int, number: int = 0) -> Edges:
    """Return each rank and every other one: the mean, in one round."""
    return [(i, j) for j in range(p) for i in range(j)]


Topology = Callable[[int, int], Edges]  # (p, number of the round) -> who sends to whom in it
TOPOLOGIES: dict[str, Topology] = {"ring": ring, "wheel": wheel, "random peers": random_peers, "everyone": everyone}


def mixing(p: int, edges: Edges) -> np.ndarray:
    """Return W of a round, (p, p) in float64. Raises ValueError for an edge outside the p ranks."""
    for i, j in edges:
        if not 0 <= i < j < p:
            raise ValueError(f"edge ({i}, {j}) of {p} ranks; give pairs (i, j) with 0 <= i < j < {p}")
    degrees = np.bincount(np.array(edges, dtype=np.int64).reshape(-1), minlength=p)
    w = np.zeros((p, p))
    for i, j in edges:
        w[i, j] = w[j, i] = 1 / (1 + max(degrees[i], degrees[j]))
    return w + np.diag(1 - w.sum(axis=1))


def spectral_gap(w: np.ndarray) -> float:
    """1 - the second largest absolute value among the eigenvalues of a symmetric W; 1 for a single rank."""
    return float(1 - np.sort(np.abs(np.linalg.eigvalsh(w)))[:-1].max(initial=0.0))


def shrinks(topology: str, p: int) -> float:
    """Return the largest factor of the distance from the mean in a round; with random peers, its root mean square.

    1 - gap. For random peers the mean of the square is (p - 2) / (2 (p - 1)) for an even p and 1/2 for an odd one: a
    pair's mean keeps half of the squares, and the products of different ranks are a little below 0 on average.
    """
    if topology != "random peers":
        return 1 - spectral_gap(mixing(p, TOPOLOGIES[topology](p, 0)))
    if p < 2:
        return 0.0
    return math.sqrt((p - 2) / (2 * (p - 1)) if p % 2 == 0 else 0.5)


def gossip(x: torch.Tensor, comm: Communicator, topology: str, rounds: int, first: int = 0) -> None:
    """Average `x` in place for the given number of rounds, starting with round `first`; every rank of `comm` calls it.

    A message of x's size each way for each edge. Raises ValueError for an unknown `topology`.
    """
    if topology not in TOPOLOGIES:
        raise ValueError(f"topology is {topology!r}; it is one of {', '.join(TOPOLOGIES)}")
    for number in range(first, first + rounds):
        mix(x, comm, TOPOLOGIES[topology](comm.size, number))


def mix(x: torch.Tensor, comm: Communicator, edges: Edges) -> None:
    """Run one round: this rank's row of W, with all messages in flight at the same time."""
    row = mixing(comm.size, edges)[comm.rank]
    theirs = {int(j): torch.empty_like(x) for j in np.flatnonzero(row) if j != comm.rank}
    requests = [comm.irecv(out, j) for j, out in theirs.items()]
    requests += [comm.isend(x, j) for j in theirs]
    for request in requests:
        request.wait()
    x.mul_(row[comm.rank])
    for j, out in theirs.items():
        x.add_(out, alpha=row[j])
