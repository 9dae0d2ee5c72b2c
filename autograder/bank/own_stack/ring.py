"""Wrong answers to `ring_all_reduce`."""

import torch

from autograder.bank.own_stack.later import AFTER_THE_LOSS, STEPS
from autograder.bank.slips import answers_to

wrong, slip = answers_to("own_stack.ring")
ALL = ("whole_chunks", "any_p_and_n", "neighbours_only", "few_bytes", "all_at_once", "the_same_bits")

slip(
    "adds in the second half too",
    "if step < p - 1:\n            taken += incoming\n        else:\n            taken.copy_(incoming)",
    "taken += incoming",
    fails=(*ALL, *AFTER_THE_LOSS),
    says="counts 2 times",
)
slip(
    "everyone sends first",
    "comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)",
    "comm.send(given, (rank + 1) % p)\n        comm.recv(incoming, (rank - 1) % p)",
    fails=(*ALL, "step.the_loss", *AFTER_THE_LOSS),
    says="use sendrecv, or let one side",
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


@wrong("the machine's own", fails=(*ALL, "step.the_loss", *AFTER_THE_LOSS), says="which this exercise forbids")
def ring_all_reduce(x, comm):
    comm.all_reduce(x)


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
    "equal chunks",
    "x.view(-1).tensor_split(p)",
    "x.view(p, -1)",
    fails=" ".join(("any_p_and_n", "few_bytes", "the_same_bits", *STEPS)),
    says="invalid for input of size",
)
