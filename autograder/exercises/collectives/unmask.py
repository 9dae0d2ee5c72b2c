"""Which of eight programs sum inside nodes first? Oracle: the sum, and who talks to other nodes, on simulated ranks."""

import torch

from autograder.checks.impostors import Behaviour, LineUp, Suspect, whole
from autograder.exercises.unmasking import examines
from hpcdl.collectives import (
    broadcast,
    naive_all_reduce,
    recursive_doubling_all_reduce,
    reduce,
    ring_all_reduce,
)
from hpcdl.comm import Communicator, Group, simulate


def ask(all_reduce, p, per_node):
    """What every rank's x holds afterwards, where rank r's is 10^r; or that others than first ranks talk to nodes."""

    def rank(comm: Communicator) -> int:
        x = torch.full((1,), 10.0**comm.rank, dtype=torch.float64)
        all_reduce(x, comm, per_node)
        return int(x)

    run = simulate(rank, p)
    across = [event for event in run.trace if event.op == "send" and event.rank // per_node != event.peer // per_node]
    talking = sorted({rank for event in across for rank in (event.rank, event.peer) if rank % per_node})
    return Behaviour(f"lets rank {talking[0]} talk to another node") if talking else run.results


def truth(x, comm, per_node):
    comm.all_reduce(x)


def node_of(comm, per_node):
    first = comm.rank // per_node * per_node
    return Group(comm, range(first, min(first + per_node, comm.size)))


def in_three_stages(x, comm, node, leaders, between=ring_all_reduce):
    reduce(x, node)
    if comm.rank in leaders:
        between(x, Group(comm, leaders))
    broadcast(x, node)


def three_stages(x, comm, per_node):
    in_three_stages(x, comm, node_of(comm, per_node), range(0, comm.size, per_node))


def doubling_between(x, comm, per_node):
    leaders = range(0, comm.size, per_node)
    in_three_stages(x, comm, node_of(comm, per_node), leaders, recursive_doubling_all_reduce)


def everything_inside_first(x, comm, per_node):
    """An all-reduce in each node, then one of the leaders, whose sum goes round."""
    node = node_of(comm, per_node)
    naive_all_reduce(x, node)
    if node.rank == 0:
        naive_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node)


def leaders_by_hand(x, comm, per_node):
    """The leaders send to rank 0, which answers each."""
    node, incoming = node_of(comm, per_node), torch.empty_like(x)
    reduce(x, node)
    for leader in range(per_node, comm.size, per_node):
        if comm.rank == 0:
            comm.recv(incoming, leader)
            x += incoming
        elif comm.rank == leader:
            comm.send(x, 0)
    for leader in range(per_node, comm.size, per_node):
        if comm.rank == 0:
            comm.send(x, leader)
        elif comm.rank == leader:
            comm.recv(x, 0)
    broadcast(x, node)


def full_nodes_only(x, comm, per_node):
    """Counts p // per_node nodes: a last, smaller one is left on its own."""
    leaders = range(0, max(comm.size // per_node, 1) * per_node, per_node)
    in_three_stages(x, comm, node_of(comm, per_node), leaders)


def nodes_of_four(x, comm, per_node):
    three_stages(x, comm, 4)


def nothing_inside(x, comm, per_node):
    """A node of one rank has nothing to sum, and this thinks that it is done then."""
    if per_node > 1:
        three_stages(x, comm, per_node)


def done_with_one_node(x, comm, per_node):
    """Where one node is all there is, it is done with the sum, and forgets to tell the others."""
    if comm.size <= per_node:
        reduce(x, comm)
    else:
        three_stages(x, comm, per_node)


line_up = LineUp(
    "unmask_nodes",
    truth=truth,
    suspects=(
        Suspect(
            "A",
            nodes_of_four,
            "makes nodes of four ranks for every per_node",
            "a second node of fewer than four ranks",
        ),
        Suspect("B", doubling_between),
        Suspect("C", three_stages),
        Suspect("D", full_nodes_only, "counts ⌊p / per_node⌋ nodes", "a last node that is smaller"),
        Suspect("E", leaders_by_hand),
        Suspect(
            "F",
            done_with_one_node,
            "does not broadcast the sum if there is only one node",
            "ranks that are all in one node",
        ),
        Suspect("G", everything_inside_first),
        Suspect("H", nothing_inside, "does nothing if a node has one rank", "nodes of one rank"),
    ),
    fields={"p": whole(1, 9), "per_node": whole(1, 9)},
    ask=ask,
)
exercise = examines(line_up, extra=True)
