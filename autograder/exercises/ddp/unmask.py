"""Which of eight programs sum over the ranks? Oracle: the sum itself, on simulated ranks of a few numbers."""

import torch

from autograder.checks.impostors import LineUp, Suspect, whole
from autograder.exercises.unmasking import examines
from hpcdl.collectives import naive_all_reduce, rabenseifner_all_reduce
from hpcdl.comm import Communicator, simulate


def ask(all_reduce, p, n):
    """What every rank's x holds afterwards, where rank r's x is 10^r, 2 · 10^r, and so on."""

    def rank(comm: Communicator) -> list[int]:
        x = 10.0**comm.rank * torch.arange(1.0, n + 1, dtype=torch.float64)
        all_reduce(x, comm)
        return x.long().tolist()

    return simulate(rank, p).results


def truth(x, comm):
    comm.all_reduce(x)


def step_round(comm, chunks, step, keep):
    """Step `step` of the ring: what arrives is kept as it is, or added."""
    p, rank = comm.size, comm.rank
    given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
    incoming = torch.empty_like(taken)
    comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
    taken.copy_(incoming) if keep else taken.add_(incoming)


def turn_twice(chunks, comm):
    for step in range(2 * (comm.size - 1)):
        step_round(comm, chunks, step, keep=step >= comm.size - 1)


def ring(x, comm):
    turn_twice(x.tensor_split(comm.size), comm)


def ring_of_padded_chunks(x, comm):
    """Zeros fill the last chunks, so that all are of one size."""
    n, p = len(x), comm.size
    padded = torch.cat([x, x.new_zeros(-n % p)])
    turn_twice(padded.split(len(padded) // p), comm)
    x.copy_(padded[:n])


def whole_chunks_only(x, comm):
    size = len(x) // comm.size
    turn_twice([x[r * size : (r + 1) * size] for r in range(comm.size)], comm)


def chunks_by_chunk(x, comm):
    turn_twice(x.chunk(comm.size), comm)


def at_least_one_step(x, comm):
    """Takes the first step as it comes, on a ring of one as well."""
    chunks, p = x.tensor_split(comm.size), comm.size
    step_round(comm, chunks, 0, keep=False)
    for step in range(1, 2 * (p - 1)):
        step_round(comm, chunks, step, keep=step >= p - 1)


def doubling(x, comm):
    """Recursive doubling without the fold: every rank's partner is taken to exist."""
    incoming, distance = torch.empty_like(x), 1
    while distance < comm.size:
        comm.sendrecv(x, comm.rank ^ distance, incoming, comm.rank ^ distance)
        x += incoming
        distance *= 2


line_up = LineUp(
    "unmask_ring",
    truth=truth,
    suspects=(
        Suspect("A", whole_chunks_only, "cuts p chunks of ⌊n / p⌋ and forgets the rest", "an n that p does not divide"),
        Suspect("B", ring_of_padded_chunks),
        Suspect("C", at_least_one_step, "takes a first step even with one rank", "a ring of one"),
        Suspect("D", ring),
        Suspect(
            "E",
            chunks_by_chunk,
            "cuts with x.chunk(p), which may give fewer than p chunks",
            "less than one number for each rank",
        ),
        Suspect("F", rabenseifner_all_reduce),
        Suspect(
            "G",
            doubling,
            "pairs each rank with rank XOR distance, which may not exist",
            "a p that is not a power of two",
        ),
        Suspect("H", naive_all_reduce),
    ),
    fields={"p": whole(1, 9), "n": whole(1, 32)},
    ask=ask,
)
exercise = examines(line_up, extra=True)
