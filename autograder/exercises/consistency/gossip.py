"""Averages with neighbours only. Oracles: exact fractions, norms of powers of W, the trace, virtual time."""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, over, sends
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "gossip",
    points=30,
    minutes=25,
    functions=("weights", "rounds_needed", "gossip"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="No rank computes the mean here: ranks exchange x with their neighbours, by send, recv, isend and irecv.",
)

Edges = list[tuple[int, int]]
LENGTHS = 2, 5  # of x, drawn alike where values, messages and time are asked


def ring(p: int) -> Edges:
    """Connect each rank with the next one; two ranks have one edge."""
    return [(i, i + 1) for i in range(p - 1)] + ([(0, p - 1)] if p > 2 else [])


def wheel(p: int) -> Edges:
    """Connect ranks 1 to p - 1 in a ring, and rank 0 with each of them."""
    return [(0, i) for i in range(1, p)] + [(i + 1, j + 1) for i, j in ring(p - 1)]


def pairs(p: int, rng: torch.Generator) -> Edges:
    """Random pairs of ranks; one rank may be left over."""
    order = torch.randperm(p, generator=rng).tolist()
    return [(min(pair), max(pair)) for pair in zip(order[::2], order[1::2], strict=False)]


def connected(p: int, rng: torch.Generator) -> Edges:
    """Random edges that connect all ranks: one from each to an earlier one, and a few more."""
    found = {(int(torch.randint(j, (), generator=rng)), j) for j in range(1, p)}
    for _ in range(p // 2):
        i, j = sorted(torch.randperm(p, generator=rng)[:2].tolist())
        found.add((i, j))
    return sorted(found)


def two_sides(p: int) -> Edges:
    """Each rank of the first half is a neighbour of each of the second: W has an eigenvalue far below 0."""
    return [(i, j) for i in range(p // 2) for j in range(p // 2, p)]


def both_ways(edges: Edges) -> list[tuple[int, int]]:
    return [*edges, *((j, i) for i, j in edges)]


def fractions(p: int, edges: Edges, mistake: str = "") -> list[list[Fraction]]:
    """Return W, pair by pair, in exact fractions; or a common wrong version of it."""
    degree = Counter(i for edge in edges for i in edge)
    share = {
        "own": lambda i, j: Fraction(1, 1 + degree[i]),
        "first": lambda i, j: Fraction(1, 1 + degree[i if (i, j) in edges else j]),
        "less": lambda i, j: Fraction(1, 1 + min(degree[i], degree[j])),
        "no one": lambda i, j: Fraction(1, max(degree[i], degree[j])),
        "p": lambda i, j: Fraction(1, p),
    }.get(mistake, lambda i, j: Fraction(1, 1 + max(degree[i], degree[j])))
    table = [[Fraction(0)] * p for _ in range(p)]
    for i, j in both_ways(edges):
        table[i][j] = share(i, j)
    if mistake != "diagonal":
        for i, row in enumerate(table):
            row[i] = 1 - sum(row, Fraction(0))
    return table


def matrix(p: int, edges: Edges, mistake: str = "") -> torch.Tensor:
    return torch.tensor([[float(x) for x in row] for row in fractions(p, edges, mistake)], dtype=torch.float64)


MISTAKES = {
    "own": "You divide by 1 + the rank's own degree: then W is not symmetric, and the mean moves. Take the larger of "
    "both degrees.",
    "first": "You take the degree of an edge's first rank. Take the larger degree of its two ranks.",
    "less": "Take the larger degree of the two, not the smaller one.",
    "no one": "Count the rank itself, too: 1 / (1 + the larger degree).",
    "p": "1 / p is right only if all ranks are neighbours. Here it is 1 / (1 + the larger degree).",
    "diagonal": "The rest of each row stays on the diagonal: rows add up to 1.",
}


@exercise.check(points=8)
def the_matrix(student, rng):
    "weights: 1 / (1 + the larger degree) for neighbours, and rows that add up to 1."
    path = [(0, 1), (1, 2), (1, 3)]
    random = [(p, connected(p, rng)) for p in (4, 7)]
    for p, edges in ((4, path), (2, [(0, 1)]), (5, ring(5)), (6, wheel(6)), (5, pairs(5, rng)), (3, []), *random):
        given = [(j, i) for i, j in edges] if p == 6 else list(edges)  # pairs may be given in either order
        right = matrix(p, edges)
        wrong = {said: matrix(p, edges, kind) for kind, said in MISTAKES.items()}
        wrong = {said: w for said, w in wrong.items() if not torch.allclose(w, right)}
        got = student.weights(p, given)
        degrees = Counter(i for edge in edges for i in edge)
        why = f"The degrees of ranks 0 to {p - 1}: {', '.join(str(degrees[i]) for i in range(p))}."
        checks.close(got, right, name=f"weights({p}, {show.show(given)})", why=why, mistakes=wrong, rtol=1e-12)


def norms(w: torch.Tensor, most: int) -> Iterator[float]:
    """Yield how much 0, 1, 2, ... rounds shrink the distance from the mean in the worst case: the norm of W^k - 1/p."""
    p, power = len(w), np.eye(len(w))
    for _ in range(most):
        yield float(np.linalg.norm(power - 1 / p, 2))
        power = power @ w.numpy()


def least(w: torch.Tensor, close: float) -> int:
    return next(k for k, norm in enumerate(norms(w, 2000)) if norm <= close)


@exercise.check(points=7)
def how_many_rounds(student, rng):
    "rounds_needed: the smallest k with |second eigenvalue|^k <= close."
    networks = [(16, ring(16)), (9, ring(9)), (12, wheel(12)), (6, two_sides(6)), (3, [(0, 1), (1, 2)]), (2, [(0, 1)])]
    networks += [(p, connected(p, rng)) for p in (6, 9, 12)]
    for p, edges in networks:
        w = matrix(p, edges)
        values = np.linalg.eigvalsh(w.numpy())
        second = max(abs(values[0]), abs(values[-2]))
        for close in (2e-4, 0.013, 0.5 * 0.9 ** torch.rand(1, generator=rng).item()):
            right = least(w, close)
            if second > 1e-9 and min(abs(second**k / close - 1) for k in (right - 1, right)) < 1e-6:
                continue  # rounding would decide
            told = {
                "You use the gap instead of 1 - gap: a round shrinks the distance by |second eigenvalue|.": _by(
                    1 - second, close
                ),
                "Negative eigenvalues count, too: take absolute values.": _by(values[-2], close),
                "Round up: after k rounds the distance must be at most `close`.": right - 1,
                "The largest eigenvalue is 1: the mean does not change. Take the second largest.": math.inf,
                "Use the distance, not its square.": _by(second**2, close),
            }
            told = {said: k for said, k in told.items() if k is not None and k != right}
            got = student.rounds_needed(w.clone(), close)
            name = f"rounds_needed(W of {p} ranks, {len(edges)} edges, {close:.4g})"
            checks.equal(got, right, name=name, mistakes=told)


def _by(factor: float, close: float) -> int | None:
    """Return the rounds if each shrinks the distance by `factor`; None if it does not shrink."""
    return math.ceil(math.log(close) / math.log(factor)) if 1e-9 < factor < 1 - 1e-9 else None


def mixed(xs: list[torch.Tensor], rounds: list[Edges], kind: str = "") -> list[torch.Tensor]:
    """Return the ranks' values after all rounds, computed in float64."""
    x = torch.stack(xs).double()
    for edges in rounds:
        if kind == "in turn":
            for i, j in edges:
                x[i] = x[j] = (x[i] + x[j]) / 2
        else:
            x = matrix(len(xs), edges, kind) @ x
    return list(x.to(xs[0].dtype))


def played(p: int, rng: torch.Generator) -> list[list[Edges]]:
    """Return rounds to try on p ranks."""
    return [[ring(p)], [wheel(p)] * 2 if p > 3 else [], [pairs(p, rng), ring(p), pairs(p, rng)], [[], pairs(p, rng)]]


@exercise.check(points=8, needs="the_matrix", seconds=SECONDS)
def each_rank_has_its_row(student, rng):
    "gossip: after each round every rank has its row of W times what all had before it."
    for p in (1, 2, 3, 5):
        for rounds in played(p, rng):
            gossiped(student, drawn(p, rng), rounds)
    gossiped(student, [x.float() for x in drawn(4, rng)], [wheel(4), pairs(4, rng)])


def drawn(p: int, rng: torch.Generator) -> list[torch.Tensor]:
    """Each rank's x, of some length."""
    n = whole_number(rng, *LENGTHS)
    return [torch.randn(n, generator=rng).double() + rank for rank in range(p)]


def gossiped(student, xs: list[torch.Tensor], rounds: list[Edges], **machine):
    """Check that every rank has its row of W times all x, after all rounds; return the run."""
    setting = f"p = {len(xs)}, rounds = {show.show(rounds)}"
    run, right = over(student, "gossip", xs, {"rounds": rounds}, **machine), mixed(xs, rounds)
    told = {said: mixed(xs, rounds, kind) for kind, said in MISTAKES.items()}
    told["You average edge by edge. All ranks average at the same time, with the values from before the round."] = (
        mixed(xs, rounds, "in turn")
    )
    told[
        "This x is the same as before the call: `x = ...` makes a new tensor, and x.copy_(...) writes into this one."
    ] = xs
    for rank, expected in enumerate(right):
        name = f"{setting}: x on rank {rank}"
        got, result = run.arguments[rank][0], run.results[rank]
        if checks.alike(result, expected) and not checks.alike(got, expected):
            checks.fail(f"{name} is not the average, but the returned tensor is: leave it in x, e.g. x.copy_(...).")
        named = {said: ys[rank] for said, ys in told.items() if not torch.allclose(ys[rank], expected)}
        checks.close(got, expected, name=name, mistakes=named, rtol=1e-9 if expected.dtype == torch.float64 else None)
    return run


@exercise.check(points=4, needs="each_rank_has_its_row", seconds=SECONDS)
def a_message_each_way(student, rng):
    "gossip: one message each way for each edge of a round, nothing else, and all are waited for."
    for p, rounds in ((5, [ring(5)] * 2), (6, [wheel(6)]), (7, [pairs(7, rng), [], pairs(7, rng)])):
        xs = drawn(p, rng)
        run, setting = gossiped(student, xs, rounds), f"p = {p}, rounds = {show.show(rounds)}"
        waited_for(run, setting)
        one_each_way(run, rounds, xs[0].nbytes, setting)


def one_each_way(run, rounds: list[Edges], nbytes: int, setting: str) -> None:
    """Two ranks that share an edge in a round have sent each other one message of nbytes, and no other was sent."""
    expected = Counter(way for edges in rounds for way in both_ways(edges))
    got = Counter((event.rank, event.peer) for event in sends(run))
    wrong = next(iter(sorted((got - expected) + (expected - got))), None)
    if wrong:
        raise checks.CheckFailure(
            f"{setting}: rank {wrong[0]} sends rank {wrong[1]} {got[wrong]} messages, expected {expected[wrong]}.",
            why="Two ranks that share an edge in a round send each other x, once. No other messages are sent.",
        )
    other = next((event.nbytes for event in sends(run) if event.nbytes != nbytes), nbytes)
    checks.that(
        other == nbytes,
        f"{setting}: a message has {other} bytes, expected {nbytes}: send x and nothing else.",
    )


AT_ONCE = 4  # message times of two rounds of a ring: two neighbours each


@exercise.check(points=3, needs="each_rank_has_its_row", seconds=SECONDS)
def all_at_the_same_time(student, rng):
    "gossip: a round of a ring takes as long with 15 ranks as with 5."
    took, runs, nbytes = {}, {}, {}
    for p in (5, 15):
        xs = drawn(p, rng)
        run = gossiped(student, xs, [ring(p)] * 2, alpha=1.0)
        waited_for(run, f"p = {p}, two rounds of a ring")
        took[p], runs[p], nbytes[p] = run.seconds, run, xs[0].nbytes
    checks.that(
        took[15] <= min(took[5], AT_ONCE) + 1.5,
        f"Two rounds of a ring take {took[5]:g} message times with 5 ranks and {took[15]:g} with 15. A rank has two "
        f"neighbours however many ranks there are, so {AT_ONCE} are enough: begin all messages of a round (isend, "
        "irecv), then wait for them.",
    )
    for p, run in runs.items():
        one_each_way(run, [ring(p)] * 2, nbytes[p], f"p = {p}, two rounds of a ring")
