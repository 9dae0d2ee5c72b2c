"""HOGWILD!: processors change one vector at the same time and lock nothing (Niu, Recht, Re and Wright 2011).

    minimise f(w) = sum over e in E of f_e(w_e)

Each term e, a hyperedge of the graph G = (V, E), reads and changes few elements of w; so processors seldom meet. Plain,
on any communicator that shares memory; `fast_hogwild` is the same compiled, on threads.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from hpcdl.comm import Communicator, SharedTensor
from hpcdl.data import SparseRows

Gradient = Callable[[torch.Tensor, int], torch.Tensor]  # (w_e, e) -> the gradient of f_e for the elements in e


class Sparsity(NamedTuple):
    """omega, elements of the largest edge; delta, the share of all edges that meet in one element; and rho.

    rho is the share of all edges that an edge may meet, itself among them.
    """

    omega: int
    delta: float
    rho: float


def sparsity(edges: Sequence[Sequence[int]]) -> Sparsity:
    """Return how seldom processors meet: Niu et al. 2011, equation 2.6.

    omega = max |e|,   delta = max over v of |{e : v in e}| / |E|,   rho = max over e of |{e' : e' meets e}| / |E|
    """
    if not edges:
        raise ValueError("edges is empty; a sum has at least one term")
    of_element: dict[int, set[int]] = {}
    for number, edge in enumerate(edges):
        for v in edge:
            of_element.setdefault(v, set()).add(number)
    most = max((len(numbers) for numbers in of_element.values()), default=0)
    meets = [len(set().union({number}, *(of_element[v] for v in edge))) for number, edge in enumerate(edges)]
    return Sparsity(max(len(set(edge)) for edge in edges), most / len(edges), max(meets) / len(edges))


def hogwild(
    w: SharedTensor, edges: Sequence[Sequence[int]], gradient: Gradient, lr: float, order: Iterable[int]
) -> None:
    """Make this processor's updates, one for each e of `order`, while others make theirs (the paper's algorithm 1).

    Read w_e; then, for each v in e, w_v <- w_v - lr G_ev(w_e), each by itself. Nothing is locked.
    """
    for e in order:
        edge = edges[e]
        w.add(edge, -lr * gradient(w.read(edge), e))


def round_robin(
    comm: Communicator,
    w: SharedTensor,
    edges: Sequence[Sequence[int]],
    gradient: Gradient,
    lr: float,
    order: Sequence[int],
) -> None:
    """Make the same updates in turns: ranks compute gradients at the same time, and update one after another.

    The paper's peer (Langford et al. 2009): a token of no bytes goes round. All ranks have as many updates to make.
    """
    token, p = torch.empty(0), comm.size
    for number, e in enumerate(order):
        change = -lr * gradient(w.read(edges[e]), e)
        if p > 1 and (number or comm.rank):
            comm.recv(token, (comm.rank - 1) % p)
        w.add(edges[e], change)
        if p > 1 and (number + 1 < len(order) or comm.rank < p - 1):
            comm.send(token, (comm.rank + 1) % p)


def logistic(rows: SparseRows) -> tuple[list[list[int]], Gradient]:
    """Return edges and gradients of sparse logistic regression: a term log(1 + exp(-y_i x_i w)) for each row i."""
    starts = rows.starts.tolist()
    edges = [rows.columns[a:b].tolist() for a, b in pairwise(starts)]

    def gradient(w_e: torch.Tensor, i: int) -> torch.Tensor:
        x = rows.values[starts[i] : starts[i + 1]].to(w_e.dtype)
        y = rows.y[i].to(w_e.dtype)
        return -y * torch.sigmoid(-y * (x @ w_e)) * x

    return edges, gradient


def completion(
    rows: Sequence[int],
    columns: Sequence[int],
    values: Sequence[float],
    shape: tuple[int, int],
    rank: int,
    mu: float = 0.0,
) -> tuple[list[list[int]], Gradient]:
    """Return the edges and gradients of matrix completion (Niu et al. 2011, section 2): Z is L R^T where it is known.

        the sum over known (u, v) of (L_u . R_v - Z_uv)^2 + mu / (2 n_u) |L_u|^2 + mu / (2 n_v) |R_v|^2

    n_u and n_v are how many are known of the row and the column. w has the `rank` elements of each row of L (shape[0],
    rank), then of R (shape[1], rank). Raises ValueError for a row or column outside `shape`, whose elements would be
    another row's.
    """
    known = list(zip(rows, columns, values, strict=True))
    for u, v, _ in known:
        if not (0 <= u < shape[0] and 0 <= v < shape[1]):
            raise ValueError(f"row {u}, column {v} is outside of shape {tuple(shape)}; both are counted from 0")
    of_row, of_column = Counter(rows), Counter(columns)
    edges = [
        [*range(u * rank, (u + 1) * rank), *range((shape[0] + v) * rank, (shape[0] + v + 1) * rank)]
        for u, v, _ in known
    ]

    def gradient(w_e: torch.Tensor, e: int) -> torch.Tensor:
        u, v, z = known[e]
        left, right = w_e.split(rank)
        error = 2 * (left @ right - z)
        return torch.cat([error * right + mu / of_row[u] * left, error * left + mu / of_column[v] * right])

    return edges, gradient


def logistic_loss(rows: SparseRows, w: torch.Tensor) -> float:
    """Return the mean of log(1 + exp(-y_i x_i w)) over all rows."""
    row = torch.repeat_interleave(torch.arange(len(rows)), rows.starts.diff())
    scores = torch.zeros(len(rows), dtype=w.dtype).index_add_(0, row, rows.values.to(w.dtype) * w[rows.columns.long()])
    return torch.nn.functional.softplus(-rows.y.to(w.dtype) * scores).mean().item()
