"""The all-reduce by recursive doubling. Oracle: the sum, and the rounds in the trace."""

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import (
    SECONDS,
    and_others,
    carried,
    either_numbers,
    has_sum_everywhere,
    numbers,
    one_of,
    same_bits,
    sum_of_unequal,
    takes_rounds,
)
from autograder.exercises.collectives.counts import log2_up
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "recursive_doubling_all_reduce",
    points=15,
    minutes=15,
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="Write it with the messages between ranks: send, recv, isend, irecv, sendrecv.",
)

DOUBLING = "recursive_doubling_all_reduce"
BITS_ON = (4, 8)  # ranks


@exercise.check(points=4, seconds=SECONDS)
def powers_of_two(student, rng):
    "The sum on every rank for p = 1, 2, 4, 8."
    for p in (1, 2, 4, 8):
        has_sum_everywhere(student, DOUBLING, numbers(p, 3, rng), f"p = {p}")
    p = one_of((2, 4, 8), rng)
    carried(student, rng, lambda: has_sum_everywhere(student, DOUBLING, numbers(p, 3, rng), ""), f"p = {p}")


@exercise.check(points=4, seconds=SECONDS, needs="powers_of_two")
def any_number_of_ranks(student, rng):
    "The sum on every rank for p = 3, 5, 6, 7, 9, and for x of any shape."
    for p in (3, 5, 6, 7, 9):
        has_sum_everywhere(student, DOUBLING, numbers(p, 3, rng), f"p = {p}")
    has_sum_everywhere(student, DOUBLING, numbers(3, (2, 3), rng), "p = 3, x of shape (2, 3)")


def sends_x_once_a_round(run, times: int, setting: str) -> None:
    """Check that no rank sends more than `times` vectors, one in each of its rounds: a gather sends p - 1."""
    n = run.given[0][0].nbytes
    for rank, sent in enumerate(run.bytes_sent):
        checks.that(
            sent <= times * n,
            f"{setting}: rank {rank} sends {sent / n:.3g} times the size of x. In each round it sends the sum that it "
            "has so far, one vector: partners add at once, and pass on no single x.",
            got=f"{sent} bytes",
            expected=f"at most {times} times {n} bytes",
        )


def counted(student, p: int, rng):
    """A run whose virtual seconds are rounds."""
    xs = either_numbers(p, whole_number(rng, 2, 8), rng)
    return has_sum_everywhere(student, DOUBLING, xs, f"p = {p}", alpha=1.0)


@exercise.check(points=4, seconds=SECONDS, needs="powers_of_two")
def log_p_rounds(student, rng):
    "log₂ p rounds for a power of two, two more for any other p."
    for p in (4, 8, 16, 2):
        run = counted(student, p, rng)
        k, nbytes = log2_up(p), run.given[0][0].nbytes
        reduce_and_broadcast = "This is a reduce and then a broadcast. Let both partners send and add: sendrecv."
        one_after_other = "Both partners send, but one after the other: sendrecv does both at the same time."
        mistakes = {reduce_and_broadcast if sum(run.bytes_sent) < p * k * nbytes else one_after_other: 2 * k}
        takes_rounds(run, k, f"p = {p}", f"recursive doubling needs log₂ {p} = {k}", mistakes)
        sends_x_once_a_round(run, k, f"p = {p}")
        waited_for(run, f"p = {p}")
    for p in BITS_ON:
        run, k = sum_of_unequal(student, DOUBLING, p, rng), log2_up(p)
        takes_rounds(run, k, f"p = {p}", f"recursive doubling needs log₂ {p} = {k}")
        sends_x_once_a_round(run, k, f"p = {p}")
    for p in and_others((2, 4, 8, 3, 6, 11), rng, most=13)[3:]:
        folds(counted(student, p, rng), p)
    folds(sum_of_unequal(student, DOUBLING, p, rng), p)


def folds(run, p: int) -> None:
    """Check the rounds on p ranks, no power of two."""
    k = log2_up(p) - 1
    rule = f"with the ranks from {2**k} on folded into the others first it takes 1 + {k} + 1"
    takes_rounds(run, k + 2, f"p = {p}", rule)
    sends_x_once_a_round(run, k + 1, f"p = {p}")
    waited_for(run, f"p = {p}")


@exercise.check(points=3, seconds=SECONDS, needs="powers_of_two")
def same_bits_on_every_rank(student, rng):
    "Every rank ends with the same bits."
    for p in BITS_ON:
        same_bits(student, DOUBLING, p, rng)
