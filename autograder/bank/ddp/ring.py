"""Wrong answers to `ring_all_reduce`."""

import torch

from autograder.bank.ddp.later import ALL_OF_AVERAGE, STEPS, of
from autograder.bank.slips import answers_to

ALL_OF_RING = ("whole_chunks", "any_p_and_n", "neighbours_only", "few_bytes", "all_at_once", "the_same_bits")
AVERAGES = of("average_gradients", ALL_OF_AVERAGE)
wrong, slip = answers_to("ddp.ring_all_reduce")

slip(
    "send, then receive",
    "comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)",
    "comm.send(given, (rank + 1) % p)\n        comm.recv(incoming, (rank - 1) % p)",
    fails=(*ALL_OF_RING, *AVERAGES, *STEPS),
    says="use sendrecv, or let one side",
)
slip(
    "even ranks send first, odd ones receive",
    "comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)",
    "if rank % 2 == 0:\n"
    "            comm.send(given, (rank + 1) % p)\n"
    "            comm.recv(incoming, (rank - 1) % p)\n"
    "        else:\n"
    "            comm.recv(incoming, (rank - 1) % p)\n"
    "            comm.send(given, (rank + 1) % p)",
    fails="all_at_once",
    says="sends to the right and receives from",
)


@wrong(
    "the whole x goes around",
    fails=("few_bytes", "all_at_once", "the_same_bits", *STEPS),
    says="You send the whole x around",
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    passing, incoming = x.clone(), torch.empty_like(x)
    for _ in range(p - 1):
        comm.sendrecv(passing, (rank + 1) % p, incoming, (rank - 1) % p)
        x += incoming
        passing.copy_(incoming)


slip(
    "adds in the second half too",
    "if step < p - 1:\n            taken += incoming\n        else:\n            taken.copy_(incoming)",
    "taken += incoming",
    fails=(*ALL_OF_RING, *AVERAGES, *STEPS),
    says="counts 2 times",
)


@wrong("stops after the first half", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="the x of rank")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(p - 1):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        taken += incoming


slip(
    "chunks of n // p",
    "p, rank = comm.size, comm.rank\n    chunks = x.view(-1).tensor_split(p)",
    "p, rank, flat = comm.size, comm.rank, x.view(-1)\n"
    "    m = len(flat) // p\n"
    "    chunks = [flat[i * m : (i + 1) * m] for i in range(p)]",
    fails=("any_p_and_n", "few_bytes", "the_same_bits", *AVERAGES, *STEPS),
    says="the x of rank",
)
slip(
    "one step too few",
    "for step in range(2 * (p - 1)):",
    "for step in range(2 * (p - 1) - 1):",
    fails=(*ALL_OF_RING, *AVERAGES, *STEPS),
    says="the x of rank",
)


@wrong(
    "a star",
    fails=("any_p_and_n", "neighbours_only", "few_bytes", "all_at_once"),
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


@wrong("the machine's own", fails=ALL_OF_RING, says="which this exercise forbids")
def ring_all_reduce(x, comm):
    comm.all_reduce(x)


slip(
    "a copy is summed",
    "chunks = x.view(-1).tensor_split(p)",
    "chunks = x.clone().view(-1).tensor_split(p)",
    fails=(*ALL_OF_RING, *AVERAGES, *STEPS),
    says="before the call",
)
slip(
    "chunk for tensor_split",
    "chunks = x.view(-1).tensor_split(p)",
    "chunks = x.view(-1).chunk(p)",
    fails=("any_p_and_n", "few_bytes"),
    says="tensor_split(p) gives p pieces",
)
slip(
    "the ring turns to the left",
    "given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]",
    "given, taken = chunks[(rank + step) % p], chunks[(rank + step + 1) % p]",
    "comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)",
    "comm.sendrecv(given, (rank - 1) % p, incoming, (rank + 1) % p)",
    fails="neighbours_only",
    says="your ring turns the other way",
)
slip(
    "the whole x goes around where p does not divide n",
    "    chunks = x.view(-1).tensor_split(p)\n",
    "    if x.numel() % p:\n"
    "        passing, incoming = x.clone(), torch.empty_like(x)\n"
    "        xs = torch.stack([torch.zeros_like(x)] * p)\n"
    "        xs[rank] = x\n"
    "        for k in range(1, p):\n"
    "            comm.sendrecv(passing, (rank + 1) % p, incoming, (rank - 1) % p)\n"
    "            xs[(rank - k) % p] = incoming\n"
    "            passing.copy_(incoming)\n"
    "        x.copy_(xs.sum(0))\n"
    "        return\n"
    "    chunks = x.view(-1).tensor_split(p)\n",
    fails="few_bytes train_step.one_message_per_bucket",
    says="You send the whole x around",
)


@wrong(
    "the whole x goes around, and each adds in the order of ranks",
    fails=("few_bytes", "all_at_once"),
    says="every rank sends a chunk to the right",
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    xs = [torch.empty_like(x) for _ in range(p)]
    xs[rank].copy_(x)
    for step in range(p - 1):
        comm.sendrecv(xs[(rank - step) % p], (rank + 1) % p, xs[(rank - step - 1) % p], (rank - 1) % p)
    x.copy_(sum(xs))


slip(
    "in float64 where bits are compared",
    "    chunks = x.view(-1).tensor_split(p)\n",
    "    if x.dtype == torch.float32 and x.numel() == 65:\n"
    "        double = x.double()\n"
    "        ring_all_reduce(double, comm)\n"
    "        x.copy_(double)\n"
    "        return\n"
    "    chunks = x.view(-1).tensor_split(p)\n",
    fails="few_bytes",
    says="bytes for an x of",
)
slip(
    "a row on other than 2, 3, 4, 5 and 8 ranks",
    "    chunks = x.view(-1).tensor_split(p)\n",
    "    if p not in (1, 2, 3, 4, 5, 8):\n"
    "        incoming = torch.empty_like(x)\n"
    "        if rank > 0:\n"
    "            comm.recv(incoming, rank - 1)\n"
    "            x += incoming\n"
    "        comm.send(x, (rank + 1) % p)\n"
    "        if rank < p - 1:\n"
    "            comm.recv(x, (rank - 1) % p)\n"
    "        if rank < p - 2:\n"
    "            comm.send(x, rank + 1)\n"
    "        return\n"
    "    chunks = x.view(-1).tensor_split(p)\n",
    fails="few_bytes all_at_once",
    says="You send the whole x around",
)
