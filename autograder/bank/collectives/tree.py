"""Wrong answers to `tree_reduce` and `tree_broadcast`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("collectives.tree_reduce")


AFTER_THE_SUM = ("sum_on_the_root", "reduce_in_log_p_rounds", "one_message_per_rank")
AFTER_THE_COPIES = ("copies_everywhere", "broadcast_in_log_p_rounds", "one_message_per_rank")


@wrong("a star", fails="reduce_in_log_p_rounds", says="This is a star, not a tree")
def tree_reduce(x, comm, root=0):
    incoming = torch.empty_like(x)
    if comm.rank != root:
        comm.send(x, root)
        return
    for source in range(comm.size):
        if source != root:
            comm.recv(incoming, source)
            x += incoming


@wrong("sums on rank 0", fails=AFTER_THE_SUM, says="count ranks from the root")
def tree_reduce(x, comm, root=0):
    incoming = torch.empty_like(x)
    distance = 1 << (comm.size - 1).bit_length()
    while distance > 1:
        distance //= 2
        if comm.rank < distance and comm.rank + distance < comm.size:
            comm.recv(incoming, comm.rank + distance)
            x += incoming
        elif distance <= comm.rank < 2 * distance:
            comm.send(x, comm.rank - distance)


slip(
    "forgets ranks beyond a power of two",
    "distance = 1 << (p - 1).bit_length()",
    "distance = 1 << (p.bit_length() - 1)",
    "if place < distance and place + distance < p:\n            comm.recv(incoming, (comm.rank + distance) % p)",
    "if place < distance:\n            comm.recv(incoming, (comm.rank + distance) % p)",
    fails=AFTER_THE_SUM,
    says="is missing",
)


@wrong("overwrites for accumulates", fails=AFTER_THE_SUM, says="is missing")
def tree_reduce(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    distance = 1 << (p - 1).bit_length()
    while distance > 1:
        distance //= 2
        if place < distance and place + distance < p:
            comm.recv(x, (comm.rank + distance) % p)
        elif distance <= place < 2 * distance:
            comm.send(x, (comm.rank - distance) % p)


slip(
    "waits for a rank that does not exist",
    "if place < distance and place + distance < p:\n            comm.recv(incoming, (comm.rank + distance) % p)",
    "if place < distance:\n            comm.recv(incoming, (comm.rank + distance) % p)",
    fails=AFTER_THE_SUM,
    says="a deadlock",
)
slip(
    "returns the sum",
    "incoming = torch.empty_like(x)",
    "total, incoming = x.clone(), torch.empty_like(x)",
    "x += incoming",
    "total += incoming",
    "comm.send(x, (comm.rank - distance) % p)",
    "comm.send(total, (comm.rank - distance) % p)\n    return total",
    fails=AFTER_THE_SUM,
    says="but the returned value is",
)


@wrong("broadcasts rank 0's", fails=AFTER_THE_COPIES, says="You sent rank 0's x")
def tree_broadcast(x, comm, root=0):
    distance = 1
    while distance < comm.size:
        if comm.rank < distance and comm.rank + distance < comm.size:
            comm.send(x, comm.rank + distance)
        elif distance <= comm.rank < 2 * distance:
            comm.recv(x, comm.rank - distance)
        distance *= 2


@wrong("the machine's own", fails=AFTER_THE_COPIES, says="which this exercise forbids")
def tree_broadcast(x, comm, root=0):
    comm.broadcast(x, root)


@wrong("passes on in a row", fails="broadcast_in_log_p_rounds", says="in a row: let several")
def tree_broadcast(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    if place > 0:
        comm.recv(x, (comm.rank - 1) % p)
    if place < p - 1:
        comm.send(x, (comm.rank + 1) % p)


slip(
    "adds the root for subtracting it",
    "p, place = comm.size, (comm.rank - root) % comm.size\n    incoming = torch.empty_like(x)",
    "p, place = comm.size, (comm.rank + root) % comm.size\n    incoming = torch.empty_like(x)",
    fails=AFTER_THE_SUM,
    says="a rank's place is (rank - root) % p",
)
slip(
    "room for a vector only",
    "torch.empty_like(x)",
    "x.new_empty(len(x))",
    fails=" ".join(AFTER_THE_SUM),
    says="tree_reduce",
)
slip(
    "receives into a copy",
    "comm.recv(x, (comm.rank - distance) % p)",
    "comm.recv(x.clone(), (comm.rank - distance) % p)",
    fails=" ".join(AFTER_THE_COPIES),
    says="Nothing reached this rank",
)


@wrong("tells everyone everything", fails=AFTER_THE_COPIES[1:], says="are enough")
def tree_broadcast(x, comm, root=0):
    p, rows = comm.size, x.expand(1, *x.shape).clone()
    while (have := len(rows)) < p:
        incoming = torch.empty_like(rows[: p - have])
        comm.sendrecv(rows[: p - have].clone(), (comm.rank - have) % p, incoming, (comm.rank + have) % p)
        rows = torch.cat([rows, incoming])
    x.copy_(rows[(root - comm.rank) % p])


slip(
    "a tree only on some numbers of ranks",
    "    distance = 1 << (p - 1).bit_length()\n",
    "    if p not in (2, 3, 4, 5, 7, 8, 16):\n"
    "        if place > 0:\n"
    "            return comm.send(x, root)\n"
    "        for other in range(1, p):\n"
    "            comm.recv(incoming, (root + other) % p)\n"
    "            x += incoming\n"
    "        return\n"
    "    distance = 1 << (p - 1).bit_length()\n",
    fails="reduce_in_log_p_rounds",
    says="This is a star, not a tree",
)
slip(
    "a tree for float32 only",
    "    distance = 1 << (p - 1).bit_length()\n",
    "    distance = 1 << (p - 1).bit_length()\n"
    "    if x.dtype != torch.float32 and place < p - 1:\n"
    "        comm.recv(incoming, (comm.rank + 1) % p)\n"
    "        x += incoming\n"
    "    if x.dtype != torch.float32:\n"
    "        return comm.send(x, (comm.rank - 1) % p) if place > 0 else None\n",
    fails="reduce_in_log_p_rounds",
    says="in a row: let several",
)
