"""The all-reduce round a ring. Oracle: the sum itself, and the trace of the messages."""

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import (
    FEW,
    SECONDS,
    and_others,
    carried,
    either_numbers,
    has_sum_everywhere,
    numbers,
    one_of,
    same_bits,
    sends,
    sum_of_unequal,
    takes_rounds,
)
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "ring_all_reduce",
    points=20,
    minutes=20,
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="Write it with messages between neighbours: send, recv, isend, irecv, sendrecv.",
    meanings={
        "index out of range": "There are fewer pieces than ranks, as `chunk` and `split` give for small n: "
        "tensor_split(p) gives p pieces of any x, some of them empty."
    },
)

RING = "ring_all_reduce"
BITS_ON = (3, 8)  # ranks
LENGTHS = (2, 3, 5, 6)  # of a piece, where p divides n


@exercise.check(points=4, seconds=SECONDS)
def whole_chunks(student, rng):
    "The sum on every rank if p divides n: p = 1, 2, 3, 4 and 12 elements."
    for p in (2, 3, 4, 1):
        has_sum_everywhere(student, RING, numbers(p, 12, rng), f"p = {p}, n = 12")
    p = one_of((2, 3, 4), rng)
    carried(student, rng, lambda: has_sum_everywhere(student, RING, numbers(p, 12, rng), ""), f"p = {p}, n = 12")


@exercise.check(points=5, seconds=SECONDS, needs="whole_chunks")
def any_p_and_n(student, rng):
    "The sum for p = 1 to 9, also if p does not divide n, if n < p, and for x of any shape."
    for p in FEW:
        for n in (1, p + 1) if p > 2 else (1, 7):
            run = has_sum_everywhere(student, RING, numbers(p, n, rng), f"p = {p}, n = {n}")
            far = [event for event in sends(run) if (event.peer - event.rank) % p not in (1, p - 1)]
            checks.that(
                not far,
                f"p = {p}, n = {n}: rank {far[0].rank if far else ''} sends to rank {far[0].peer if far else ''}, not "
                "to its neighbour. With pieces of unequal length, even empty ones, it is the same ring.",
            )
    has_sum_everywhere(student, RING, numbers(4, (3, 2), rng), "p = 4, x of shape (3, 2)")


@exercise.check(points=3, seconds=SECONDS, needs="whole_chunks")
def neighbours_only(student, rng):
    "Every rank sends to the right, to rank + 1, and receives from the left."
    for p in and_others((5, 4, 8), rng, most=9, count=1):
        directions, n = set(), p * one_of(LENGTHS, rng)
        for event in sends(has_sum_everywhere(student, RING, either_numbers(p, n, rng), f"p = {p}, n = {n}")):
            direction = (event.peer - event.rank) % p
            checks.that(
                direction in (1, p - 1),
                f"p = {p}: rank {event.rank} sends to rank {event.peer}, which is not its neighbour on the ring.",
            )
            directions.add(direction)
        checks.that(
            directions != {p - 1} or p == 2,
            f"p = {p}: rank 0 sends to rank {p - 1}. Sends go to rank + 1, receives come from rank - 1 (modulo p): "
            "your ring turns the other way.",
        )
        checks.that(
            len(directions) == 1,
            f"p = {p}: your messages go both ways. Send to (rank + 1) % p, receive from (rank - 1) % p.",
        )


@exercise.check(points=3, seconds=SECONDS, needs="whole_chunks")
def few_bytes(student, rng):
    "Each rank sends 2(p-1)/p times the size of x, the least that an all-reduce can send."
    for p in and_others((2, 4, 5, 8), rng, most=9):
        sends_pieces(student, p, p * one_of(LENGTHS, rng), rng)
    sends_pieces(student, 4, 5, rng)
    for p in and_others((5, 8), rng, most=9, count=1):
        sends_pieces(student, p, p * whole_number(rng, 1, 5) + whole_number(rng, 1, p - 1), rng)
    for p in and_others(BITS_ON, rng, most=9, count=1):
        run = sum_of_unequal(student, RING, p, rng)
        are_pieces(run, p, len(run.given[0][0]))


def sends_pieces(student, p: int, length: int, rng) -> None:
    """Check the bytes that each rank sends for an x of `length`: pieces of ⌈length / p⌉ numbers, or one less."""
    run = has_sum_everywhere(student, RING, either_numbers(p, length, rng), f"p = {p}, n = {length}")
    are_pieces(run, p, length)


def are_pieces(run, p: int, length: int) -> None:
    n = run.given[0][0].nbytes
    most = 2 * (p - 1) * -(-length // p) * (n // length)
    for rank, sent in enumerate(run.bytes_sent):
        whole = "You send the whole x around: cut it into p chunks, and send one chunk in each step."
        if sent > most or (sent != most and length % p == 0):  # fewer bytes cannot carry the sum of any numbers
            raise checks.CheckFailure(
                f"p = {p}: rank {rank} sends {sent} bytes for an x of {n}.",
                got=f"{sent} bytes",
                expected=f"2(p-1)/p n, {'at most ' * (length % p > 0)}{most} bytes: p - 1 chunks in each half",
                mistake=whole if all(event.nbytes >= n for event in sends(run)) else "",
            )


@exercise.check(points=3, seconds=SECONDS, needs="whole_chunks")
def all_at_once(student, rng):
    "It takes 2(p-1) steps: in each of them all ranks send and receive at the same time."
    for p in and_others((2, 3, 4, 5), rng, most=9):
        n = p * one_of(LENGTHS, rng)
        run = has_sum_everywhere(student, RING, either_numbers(p, n, rng), f"p = {p}", alpha=1.0)
        most, cut = (
            2 * (p - 1),
            "Ranks wait for each other: sendrecv sends to the right and receives from the left at once.",
        )
        takes_rounds(run, most, f"p = {p}", f"a ring needs 2(p-1) = {most}", {cut: round(run.seconds)})
        sends_in_each_step(run, most, f"p = {p}")
        waited_for(run, f"p = {p}")


def sends_in_each_step(run, steps: int, setting: str) -> None:
    """Check that no rank sends fewer messages than there are steps."""
    for rank in range(len(run.results)):
        sent = sum(event.rank == rank and event.nbytes > 0 for event in sends(run))
        checks.that(
            sent >= steps,
            f"{setting}: rank {rank} sends in {sent} of the 2(p-1) = {steps} steps; in each of them every rank sends a "
            "chunk to the right: p - 1 steps to sum, p - 1 to pass the sums on.",
            got=f"{sent} messages",
            expected=f"{steps} messages of a p-th of x",
        )


@exercise.check(points=2, seconds=SECONDS, needs="whole_chunks")
def the_same_bits(student, rng):
    "Every rank ends with the same bits."
    for p in and_others(BITS_ON, rng, most=9, count=1):
        same_bits(student, RING, p, rng)
