"""Reduce and broadcast along a tree. Oracle: the sum, the root's own x, and the rounds in the trace."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import (
    FEW,
    SECONDS,
    and_others,
    carried,
    has_sum,
    numbers,
    one_of,
    over,
    sends,
    small_numbers,
    takes_rounds,
)
from autograder.exercises.collectives.counts import log2_up
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "tree_reduce",
    points=15,
    minutes=15,
    functions=("tree_reduce", "tree_broadcast"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="Write it with the messages between ranks: send, recv, isend, irecv, sendrecv.",
)

ROOTS = {2: 0, 3: 2, 4: 0, 7: 6, 8: 3, 16: 0}  # by the number of ranks on which rounds are counted


def counted(rng):
    """Each x, by rank, and the root of the runs whose rounds are counted: on ROOTS' numbers of ranks and on others."""
    for i, p in enumerate(and_others(tuple(ROOTS), rng, most=15), whole_number(rng, 0, 1)):
        drawn, either = whole_number(rng, 0, p - 1), (numbers, small_numbers)[i % 2]
        yield either(p, whole_number(rng, 2, 8), rng), ROOTS.get(p, drawn)


def roots(p: int) -> tuple[int, ...]:
    """All kinds of roots for a few p, one for the others: each run of p ranks takes its time."""
    return (0, p // 2, p - 1) if p in (3, 8) else (p // 2,)


@exercise.check(points=4, seconds=SECONDS)
def sum_on_the_root(student, rng):
    "tree_reduce: the root's x is the sum, for p = 1 to 9, any root and any shape."
    for p in FEW:
        for root in roots(p):
            root_has_sum(student, numbers(p, 3, rng), root)
    root_has_sum(student, numbers(3, (2, 2), rng), 1)
    p = one_of((2, 3, 4, 5), rng)
    carried(student, rng, lambda: root_has_sum(student, numbers(p, 3, rng), p - 1), f"tree_reduce, p = {p}")


def root_has_sum(student, xs: list[torch.Tensor], root: int, **machine):
    """Run tree_reduce on `xs`, by rank; the root's x becomes the sum."""
    run, p, total = over(student, "tree_reduce", xs, {"root": root}, **machine), len(xs), torch.stack(xs).sum(0)
    is_on = lambda rank: checks.same(run.arguments[rank][0], total)  # noqa: E731
    mistakes = {"The sum is on rank 0 for every root: count ranks from the root.": lambda: is_on(0)} if root else {}
    other = (-root) % p  # whose place is 0 where that is (rank + root) % p
    if other != root:
        turned = f"The sum is on rank {other}: a rank's place is (rank - root) % p, and not (rank + root) % p."
        mistakes[turned] = lambda: is_on(other)
    has_sum(run, root, f"tree_reduce, p = {p}, root = {root}", mistakes)
    return run


@exercise.check(points=4, seconds=SECONDS)
def copies_everywhere(student, rng):
    "tree_broadcast: every x becomes the root's, for p = 1 to 9 and any root."
    for p in FEW:
        for root in roots(p):
            all_have_roots(student, small_numbers(p, (2, 3), rng), root)
    p = one_of((2, 3, 4, 5), rng)
    ask = lambda: all_have_roots(student, small_numbers(p, (2, 3), rng), p - 1)  # noqa: E731
    carried(student, rng, ask, f"tree_broadcast, p = {p}")


def all_have_roots(student, xs: list[torch.Tensor], root: int, **machine):
    """Run tree_broadcast on `xs`, by rank; every x becomes the root's."""
    run, p = over(student, "tree_broadcast", xs, {"root": root}, **machine), len(xs)
    for rank in (*range(1, p), 0):  # rank 0 last: it has its own x also where nothing has reached it
        mistakes = {"You sent rank 0's x: send the root's.": xs[0]} if root and rank else {}
        if rank != root:
            mistakes["Nothing reached this rank: its x has not changed."] = xs[rank]
        name = f"tree_broadcast, p = {p}, root = {root}: x on rank {rank}"
        checks.close(run.arguments[rank][0], xs[root], name=name, rtol=0, atol=0, mistakes=mistakes)
    return run


@exercise.check(points=3, seconds=SECONDS, needs="sum_on_the_root")
def reduce_in_log_p_rounds(student, rng):
    "tree_reduce takes ⌈log₂ p⌉ rounds: a rank that has sent its x is done, the others continue in pairs."
    for xs, root in counted(rng):
        run = root_has_sum(student, xs, root, alpha=1.0)
        _tree_rounds(run, root, f"tree_reduce, p = {len(xs)}, root = {root}")


@exercise.check(points=2, seconds=SECONDS, needs="copies_everywhere")
def broadcast_in_log_p_rounds(student, rng):
    "tree_broadcast takes ⌈log₂ p⌉ rounds: in each, all ranks that have x send it."
    for xs, root in counted(rng):
        run = all_have_roots(student, xs, root, alpha=1.0)
        _tree_rounds(run, root, f"tree_broadcast, p = {len(xs)}, root = {root}")


def _tree_rounds(run, root: int, setting: str) -> None:
    ends = [{event.rank, event.peer} for event in sends(run)]
    p, peers = len(run.results), set().union(*(pair for pair in ends if root in pair)) - {root}
    star = f"This is a star, not a tree: the root talks to all {p - 1} others itself."
    row = "The messages follow one another in a row: let several pairs of ranks work in each round."
    mistakes = {star if len(peers) == p - 1 else row: p - 1} if p > 3 else {}
    rule = f"the tree needs ⌈log₂ {p}⌉ = {log2_up(p)}, with a distance that doubles or halves from round to round"
    takes_rounds(run, log2_up(p), setting, rule, mistakes)
    _one_message_each(run, setting)
    waited_for(run, setting)


@exercise.check(points=2, seconds=SECONDS, needs=("sum_on_the_root", "copies_everywhere"))
def one_message_per_rank(student, rng):
    "p - 1 messages of n bytes: every rank but the root gives (or gets) once."
    for name, ask in (("tree_reduce", root_has_sum), ("tree_broadcast", all_have_roots)):
        for p in (5, 8):
            _one_message_each(ask(student, small_numbers(p, whole_number(rng, 2, 8), rng), 1), f"{name}, p = {p}")


def _one_message_each(run, setting: str) -> None:
    sizes, p, n = [event.nbytes for event in sends(run)], len(run.results), run.given[0][0].nbytes
    checks.that(
        sizes == [n] * (p - 1),
        f"{setting}: {len(sizes)} messages of {sum(sizes)} bytes in total; {p - 1} of {n} bytes are enough.",
    )
