"""Wrong answers to `ring_all_reduce`."""

import torch

from autograder.authoring import wrong
from autograder.bank.own_stack.later import AFTER_THE_LOSS, STEPS
from autograder.bank.slips import slip

RING = "own_stack.ring"
ALL = ("whole_chunks", "any_p_and_n", "neighbours_only", "few_bytes", "all_at_once", "the_same_bits")


@wrong(RING, "adds in the second half too", fails=(*ALL, *AFTER_THE_LOSS), says="counts 2 times")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        taken += incoming


@wrong(
    RING, "everyone sends first", fails=(*ALL, "step.the_loss", *AFTER_THE_LOSS), says="use sendrecv, or let one side"
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.send(given, (rank + 1) % p)
        comm.recv(incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(RING, "a star", fails=("neighbours_only", "few_bytes"), says="which is not its neighbour on the ring")
def ring_all_reduce(x, comm):
    if comm.rank:
        comm.send(x, 0)
        comm.recv(x, 0)
        return
    incoming = torch.empty_like(x)
    for source in range(1, comm.size):
        comm.recv(incoming, source)
        x += incoming
    for dest in range(1, comm.size):
        comm.send(x, dest)


@wrong(RING, "the machine's own", fails=(*ALL, "step.the_loss", *AFTER_THE_LOSS), says="which this exercise forbids")
def ring_all_reduce(x, comm):
    comm.all_reduce(x)


@wrong(RING, "the ring turns to the left", fails="neighbours_only", says="your ring turns the other way")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank + step) % p], chunks[(rank + step + 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank - 1) % p, incoming, (rank + 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


slip(
    RING,
    "equal chunks",
    "x.view(-1).tensor_split(p)",
    "x.view(p, -1)",
    fails=" ".join(("any_p_and_n", "the_same_bits", *STEPS)),
    says="invalid for input of size",
)
