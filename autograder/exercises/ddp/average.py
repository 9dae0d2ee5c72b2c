"""The mean gradient over ranks, each sample counting the same. Oracle: the weighted mean, and the trace."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, and_others, carried
from autograder.exercises.ddp.traffic import CARRYING, NUMBERS, all_reduces, per_all_reduce
from autograder.exercises.ddp.training import parts
from autograder.exercises.ready_made import RANKS

exercise = Exercise(
    "average_gradients",
    points=10,
    minutes=10,
    uses=("ring_all_reduce",),
    forbid=RANKS,
    instead="Write yourself what torch.distributed does, with `comm`.",
    meanings={
        "split_sizes to sum exactly": "What you split has not as many numbers as the gradients: is n_r still there?",
    },
)


def shapes(rng, least: int = 2) -> list[tuple[int, ...]]:
    """Of `least` to four gradients, of one to three axes; no two have as many numbers."""
    drawn = [(3, 4), (4,), (2, 3, 5), (1, 7), (3, 2, 1)]
    count = int(torch.randint(least, 5, (), generator=rng))
    return [drawn[i] for i in torch.randperm(len(drawn), generator=rng)[:count].tolist()]


def averaged(student, sizes: tuple[int, ...], rng, drawn: list):
    """A run on gradients of these shapes; by rank the tensors given, and what they were."""
    given = [[torch.randn(shape, generator=rng) * (n > 0) for shape in drawn] for n in sizes]
    before = [[grad.clone() for grad in grads] for grads in given]
    run = student.ranks("average_gradients", len(sizes), lambda rank: (list(given[rank]), sizes[rank]))
    return run, given, before


def are_means(student, sizes: tuple[int, ...], rng, drawn: list | None = None):
    """Check a run on gradients of its own, of the `drawn` shapes; return it, and by rank the tensors given."""
    run, given, before = averaged(student, sizes, rng, drawn or shapes(rng))
    p, total = len(sizes), sum(sizes)
    for rank in range(p):
        for i, own in enumerate(before[rank]):
            grads = [b[i] for b in before]
            weighted = sum(n * grad for n, grad in zip(sizes, grads, strict=True))
            mistakes = {
                "This is still the rank's own gradient. Write the mean into it: grad.copy_(...).": own,
                "This is the sum of the gradients: divide.": sum(grads),
                "This is the mean of the ranks' means. A rank with more samples must count more: n_r / N.": sum(grads)
                / p,
                "This is the sum of n_r g_r: divide by N, the number of all samples.": weighted,
                "This is divided by p. Weighted with n_r, the sum is over samples: divide by N.": weighted / p,
            }
            name = f"n_r = {', '.join(map(str, sizes))}: grads[{i}] on rank {rank}"
            why = f"It is Σ (n_r / N) g_r over the ranks, N = {total}."
            checks.close(
                run.after(rank, given[rank][i]),
                weighted / total,
                name=name,
                why=why,
                mistakes=mistakes if p > 1 else None,
            )
    return run, given


@exercise.check(points=3, seconds=SECONDS)
def equal_batches(student, rng):
    "With equally many samples on every rank it is the plain mean, in place."
    for sizes in ((4, 4), (2, 2, 2), (5,)):
        are_means(student, sizes, rng)
    carried(student, rng, lambda: are_means(student, (4, 4), rng), "n_r = 4, 4")


@exercise.check(points=3, seconds=SECONDS, needs="equal_batches")
def unequal_batches(student, rng):
    "A rank's gradient counts in proportion to its samples: n_r / N."
    for sizes in ((3, 1), (1, 2, 5), (7, 7, 6, 6), parts(rng, least=1)):
        are_means(student, sizes, rng)


@exercise.check(points=2, seconds=SECONDS, needs="equal_batches")
def a_rank_without_samples(student, rng):
    "A rank whose part of the batch is empty does not count, and gets the mean like the others."
    for sizes in ((2, 0), (0, 3, 1), (0, *parts(rng))):
        are_means(student, sizes, rng)


def one_too_many(run, messages: int, grads: list, found: float) -> str:
    """Say why rank 0 takes part in `found` all-reduces of so many `messages`."""
    sizes = sorted(event.nbytes for event in run.trace if event.rank == 0 and event.op in CARRYING)
    p = len(run.results)
    if sum(sizes) > 1.5 * 2 * (p - 1) / p * sum(grad.nbytes for grad in grads):
        return "The gradients travel twice: one all-reduce brings the sum to all ranks."
    if found == 2 and sizes[messages - 1] <= NUMBERS:
        return "You send the number of samples in one more all-reduce: append it to the gradients."
    return "That is one per tensor, and each costs its latency: put all into one flat tensor first."


def drawn_equal(p: int, rng) -> tuple[int, ...]:
    """As many samples on each of p ranks."""
    return (int(torch.randint(3, 10, (), generator=rng)),) * p


@exercise.check(points=2, seconds=SECONDS, needs="equal_batches")
def one_all_reduce(student, rng):
    "All gradients travel in one all-reduce, and n_r with them."
    for p in and_others((2, 4, 3), rng, most=8, count=1):
        long = [*shapes(rng, least=4), (p, 11)]  # so that all pieces are longer than n_r
        run, given = are_means(student, drawn_equal(p, rng), rng, long)
        messages = [len(shares) for shares in per_all_reduce(student, p, rng)]
        found = max(all_reduces(run, rank, messages[rank]) for rank in range(p))
        if found > 1:
            raise checks.CheckFailure(
                f"p = {p}: the ranks take part in {found:.3g} all-reduces for {len(given[0])} gradients.",
                got=f"{found:.3g} all-reduces",
                expected="1",
                mistake=one_too_many(run, messages[0], given[0], found),
            )
        shortest = min(event.nbytes for event in run.trace if event.op in CARRYING)
        checks.that(
            shortest > NUMBERS,
            f"p = {p}: there is a message of {shortest} bytes, and a p-th of all gradients has more. You send the "
            "number of samples in one more all-reduce: append it to the gradients.",
        )
