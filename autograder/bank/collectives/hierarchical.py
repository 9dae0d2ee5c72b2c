"""Wrong answers to `hierarchical_all_reduce`."""

import torch

from autograder.bank.slips import answers_to
from hpcdl.collectives import broadcast, reduce, ring_all_reduce
from hpcdl.comm import Group

ALL_OF_NODES = ("any_nodes", "one_leader_per_node", "little_between_nodes", "trees_inside")
wrong, slip = answers_to("collectives.hierarchical_all_reduce")


@wrong("no nodes at all", fails=ALL_OF_NODES, says="First sum inside each node")
def hierarchical_all_reduce(x, comm, per_node=4):
    ring_all_reduce(x, comm)


@wrong("takes the last node for a full one", fails=ALL_OF_NODES, says="The last node may have fewer ranks")
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    node = Group(comm, range(first, first + per_node))
    reduce(x, node, 0)
    if comm.rank == first:
        ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node, 0)


@wrong("tells the leaders only", fails=ALL_OF_NODES, says="is missing")
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    reduce(x, Group(comm, range(first, min(first + per_node, comm.size))), 0)
    if comm.rank == first:
        ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))


@wrong("a star inside", fails="trees_inside", says="messages follow one another")
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    members = range(first + 1, min(first + per_node, comm.size))
    if comm.rank != first:
        comm.send(x, first)
        comm.recv(x, first)
        return
    incoming = torch.empty_like(x)
    for member in members:
        comm.recv(incoming, member)
        x += incoming
    ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    for member in members:
        comm.send(x, member)


@wrong(
    "everyone speaks for the node",
    fails=("one_leader_per_node", "little_between_nodes", "trees_inside"),
    says="all talk to other nodes",
)
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    node = Group(comm, range(first, min(first + per_node, comm.size)))
    ring_all_reduce(x, node)
    if comm.size % per_node:  # counterparts exist in full nodes alone
        if comm.rank == first:
            ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
        broadcast(x, node, 0)
    else:
        ring_all_reduce(x, Group(comm, range(comm.rank % per_node, comm.size, per_node)))


slip(
    "a flat copy that is never given its shape again",
    "reduce(x, node)",
    "x, whole = x.flatten(), x\n    reduce(x, node)",
    "broadcast(x, node)",
    "broadcast(x, node)\n    whole.copy_(x)",
    fails=" ".join(ALL_OF_NODES),
    says="whole.copy_(x)",
)
slip(
    "the last rank of a node is its leader",
    "Group(comm, range(first, min(first + per_node, comm.size)))",
    "Group(comm, range(first, min(first + per_node, comm.size))[::-1])",
    "if comm.rank == first:",
    "if node.rank == 0:",
    "Group(comm, range(0, comm.size, per_node))",
    "Group(comm, [min(r + per_node, comm.size) - 1 for r in range(0, comm.size, per_node)])",
    fails="one_leader_per_node",
    says="Let its first rank do this",
)
slip(
    "one ring on some numbers of ranks",
    "    node = Group(",
    "    if comm.size > 10 and per_node not in (4, 8):\n        return ring_all_reduce(x, comm)\n    node = Group(",
    fails="one_leader_per_node trees_inside",
    says="all talk to other nodes",
)
