"""Wrong answers to `recursive_doubling_all_reduce`."""

import torch

from autograder.bank.slips import answers_to

ALL_OF_DOUBLING = ("powers_of_two", "any_number_of_ranks", "log_p_rounds", "same_bits_on_every_rank")
wrong, slip = answers_to("collectives.recursive_doubling_all_reduce")


@wrong("send, then receive", fails=ALL_OF_DOUBLING, says="use sendrecv, or let one side receive")
def recursive_doubling_all_reduce(x, comm):
    incoming, distance = torch.empty_like(x), 1
    while distance < comm.size:
        comm.send(x, comm.rank ^ distance)
        comm.recv(incoming, comm.rank ^ distance)
        x += incoming
        distance *= 2


@wrong("skips partners that are not there", fails=("any_number_of_ranks", "log_p_rounds"), says="is missing")
def recursive_doubling_all_reduce(x, comm):
    incoming, distance = torch.empty_like(x), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        if partner < comm.size:
            comm.sendrecv(x, partner, incoming, partner)
            x += incoming
        distance *= 2


@wrong("receives into what it sends", fails=ALL_OF_DOUBLING, says="share memory")
def recursive_doubling_all_reduce(x, comm):
    mine, distance = x.clone(), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        comm.sendrecv(x, partner, x, partner)
        x += mine
        mine.copy_(x)
        distance *= 2


@wrong("partners take turns", fails="log_p_rounds", says="sendrecv does both at the same time")
def recursive_doubling_all_reduce(x, comm):
    q = 1 << (comm.size.bit_length() - 1)
    incoming, distance = torch.empty_like(x), 1
    if comm.rank >= q:
        comm.send(x, comm.rank - q)
        comm.recv(x, comm.rank - q)
        return
    if comm.rank + q < comm.size:
        comm.recv(incoming, comm.rank + q)
        x += incoming
    while distance < q:
        partner = comm.rank ^ distance
        if comm.rank < partner:
            comm.send(x, partner)
            comm.recv(incoming, partner)
        else:
            comm.recv(incoming, partner)
            comm.send(x, partner)
        x += incoming
        distance *= 2
    if comm.rank + q < comm.size:
        comm.send(x, comm.rank + q)


@wrong("a tree up and down", fails="log_p_rounds", says="This is a reduce and then a broadcast")
def recursive_doubling_all_reduce(x, comm):
    tree_reduce(x, comm)
    tree_broadcast(x, comm)


@wrong("adds round a circle", fails="same_bits_on_every_rank", says="in their last bits")
def recursive_doubling_all_reduce(x, comm):
    q = 1 << (comm.size.bit_length() - 1)
    incoming, distance = torch.empty_like(x), 1
    if comm.rank >= q:
        comm.send(x, comm.rank - q)
        comm.recv(x, comm.rank - q)
        return
    if comm.rank + q < comm.size:
        comm.recv(incoming, comm.rank + q)
        x += incoming
    while distance < q:
        comm.sendrecv(x, (comm.rank + distance) % q, incoming, (comm.rank - distance) % q)
        x += incoming
        distance *= 2
    if comm.rank + q < comm.size:
        comm.send(x, comm.rank + q)


slip("room for a vector only", "torch.empty_like(x)", "x.new_empty(len(x))", fails="any_number_of_ranks", says="p = 3")


@wrong("gathers every x and adds them all", fails="log_p_rounds", says="pass on no single x")
def recursive_doubling_all_reduce(x, comm):
    p, rows = comm.size, x.expand(1, *x.shape).clone()
    while (have := len(rows)) < p:
        incoming = torch.empty_like(rows[: p - have])
        comm.sendrecv(rows[: p - have].clone(), (comm.rank - have) % p, incoming, (comm.rank + have) % p)
        rows = torch.cat([rows, incoming])
    x.copy_(rows.roll(comm.rank, 0).sum(0))


slip(
    "in float64 where numbers are not whole",
    "    incoming = torch.empty_like(x)\n",
    "    if x.dtype == torch.float32 and (x != x.round()).any():\n"
    "        double = x.double()\n"
    "        recursive_doubling_all_reduce(double, comm)\n"
    "        x.copy_(double)\n"
    "        return\n"
    "    incoming = torch.empty_like(x)\n",
    fails="log_p_rounds",
    says="times the size of x",
)
slip(
    "folds on some numbers of ranks only",
    "    incoming = torch.empty_like(x)\n",
    "    incoming = torch.empty_like(x)\n"
    "    if q < comm.size and comm.size not in (3, 6, 11):\n"
    "        tree_reduce(x, comm)\n"
    "        return tree_broadcast(x, comm)\n",
    fails="log_p_rounds",
    says="folded into the others first",
)
