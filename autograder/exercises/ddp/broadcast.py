"""Rank 0's parameters on every rank. Oracle: the root's own tensors, to the bit."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.ready_made import RANKS

exercise = Exercise(
    "broadcast_parameters",
    points=5,
    minutes=6,
    forbid=RANKS,
    instead="Write yourself what torch.distributed does, with `comm`.",
)

SHAPES = ((3, 4), (4,), (2, 3, 2), (1,))
FROZEN = 2  # the index of the parameter that does not learn


def spread(student, p: int, root: int, rng, **options):
    """A run on ranks with parameters of their own: by rank the given tensors, the list afterwards, the originals."""
    given = [[torch.randn(shape, generator=rng) for shape in SHAPES] for _ in range(p)]
    for params in given:
        for i, param in enumerate(params):
            param.requires_grad_(i != FROZEN)
    before = [[param.detach().clone() for param in params] for params in given]
    run = student.ranks("broadcast_parameters", p, lambda rank: (list(given[rank]),), {"root": root}, **options)
    kept = [[run.after(rank, param) for param in params] for rank, params in enumerate(given)]
    return kept, [arguments[0] for arguments in run.arguments], before


def copies_of_root(student, p: int, root: int, rng, **options) -> None:
    _, after, before = spread(student, p, root, rng, **options)
    for rank in (*range(1, p), 0):  # rank 0 last: it has its own values also where nothing has reached it
        for i in range(len(SHAPES)):
            mean = sum(params[i] for params in before) / p
            mistakes = {"These are rank 0's values: take rank `root`'s.": before[0][i]} if root and rank else {}
            if rank != root:
                mistakes["This rank still has its own parameter: the root's never arrived."] = before[rank][i]
            if p > 1:
                mistakes["These are the means over the ranks: every rank takes the root's own."] = mean
            frozen = ", which is frozen," if i == FROZEN else ""
            name = f"p = {p}, root = {root}: params[{i}]{frozen} on rank {rank}"
            checks.close(after[rank][i].detach(), before[root][i], name=name, rtol=0, atol=0, mistakes=mistakes)


@exercise.check(points=2, seconds=SECONDS)
def all_have_rank_0s(student, rng):
    "Ranks that begin with different weights all end with rank 0's, to the bit."
    for p in (2, 3, 1, 5, 8):
        copies_of_root(student, p, 0, rng)
    carried(student, rng, lambda: copies_of_root(student, 3, 0, rng), "p = 3")


@exercise.check(points=2, seconds=SECONDS, needs="all_have_rank_0s")
def any_root(student, rng):
    "Another root works, too, and the parameters may come one by one."
    for p, root in ((2, 1), (3, 1), (4, 3)):
        copies_of_root(student, p, root, rng)
    copies_of_root(student, 2, 0, rng, harness="once")


@exercise.check(points=1, seconds=SECONDS, needs="all_have_rank_0s")
def in_place(student, rng):
    "The tensors themselves are overwritten: the model holds them, not your list."
    given, _, before = spread(student, 3, 0, rng)
    for rank in (1, 2):
        for i in range(len(SHAPES)):
            checks.that(
                torch.equal(given[rank][i], before[0][i]),
                f"params[{i}] on rank {rank} was replaced in the list, but the tensor itself has not changed. Receive "
                "into the parameter itself, so that the model sees it.",
                got=given[rank][i].detach(),
                expected=before[0][i],
            )
    keep_their_memory(student, rng)


def keep_their_memory(student, rng) -> None:
    """Check what the parameters' memory holds, which others, such as a bucket or an optimizer, may use as well."""
    given = [[torch.randn(shape, generator=rng) for shape in SHAPES] for _ in range(3)]
    run = student.ranks("broadcast_parameters", 3, lambda rank: (given[rank],), {"root": 0}, harness="remembered")
    for rank, memory in enumerate(run.results):
        for i, held in enumerate(memory):
            checks.that(
                torch.equal(held, given[0][i]),
                f"The memory that params[{i}] had on rank {rank} does not hold rank 0's values. `param.data = ...` "
                "points the parameter at another memory, and what uses the old one, such as a bucket, does not see "
                "the values: write into it.",
                got=held,
                expected=given[0][i],
            )
