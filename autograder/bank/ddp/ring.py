"""Wrong answers to `ring_all_reduce`."""

import torch

from autograder.authoring import wrong
from autograder.bank.ddp.later import ALL_OF_AVERAGE, STEPS, of

ALL_OF_RING = ("whole_chunks", "any_p_and_n", "neighbours_only", "few_bytes", "all_at_once", "the_same_bits")
AVERAGES = of("average_gradients", ALL_OF_AVERAGE)
RING = "ddp.ring_all_reduce"


@wrong(RING, "send, then receive", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="use sendrecv, or let one side")
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


@wrong(
    RING, "even ranks send first, odd ones receive", fails="all_at_once", says="sends to the right and receives from"
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        if rank % 2 == 0:
            comm.send(given, (rank + 1) % p)
            comm.recv(incoming, (rank - 1) % p)
        else:
            comm.recv(incoming, (rank - 1) % p)
            comm.send(given, (rank + 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(
    RING,
    "the whole x goes around",
    fails=("few_bytes", "the_same_bits", *STEPS),
    says="You send the whole x around",
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    passing, incoming = x.clone(), torch.empty_like(x)
    for _ in range(p - 1):
        comm.sendrecv(passing, (rank + 1) % p, incoming, (rank - 1) % p)
        x += incoming
        passing.copy_(incoming)


@wrong(RING, "adds in the second half too", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="counts 2 times")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        taken += incoming


@wrong(RING, "stops after the first half", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="the x of rank")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(p - 1):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        taken += incoming


@wrong(RING, "chunks of n // p", fails=("any_p_and_n", "the_same_bits", *AVERAGES, *STEPS), says="the x of rank")
def ring_all_reduce(x, comm):
    p, rank, flat = comm.size, comm.rank, x.view(-1)
    m = len(flat) // p
    chunks = [flat[i * m : (i + 1) * m] for i in range(p)]
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(RING, "one step too few", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="the x of rank")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1) - 1):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(
    RING,
    "a star",
    fails=("neighbours_only", "few_bytes"),
    says="which is not its neighbour on the ring",
)
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


@wrong(RING, "the machine's own", fails=ALL_OF_RING, says="which this exercise forbids")
def ring_all_reduce(x, comm):
    comm.all_reduce(x)


@wrong(RING, "a copy is summed", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="before the call")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.clone().view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(RING, "chunk for tensor_split", fails=("any_p_and_n",), says="tensor_split(p) gives p pieces")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).chunk(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


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
