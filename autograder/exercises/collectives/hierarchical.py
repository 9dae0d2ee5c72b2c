"""The all-reduce in two stages, inside nodes and between them. Oracle: the sum, and what crosses between nodes."""

import math

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import (
    SECONDS,
    carried,
    either_numbers,
    has_sum_everywhere,
    numbers,
    one_of,
    sends,
    takes_rounds,
)
from autograder.exercises.collectives.counts import log2_up, nodes
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "hierarchical_all_reduce",
    points=10,
    minutes=10,
    uses=("tree_reduce", "recursive_doubling_all_reduce"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    offers=("hpcdl.collectives.naive", "hpcdl.collectives.recursive_doubling", "hpcdl.collectives.rabenseifner"),
    instead="Put it together from reduce, an all-reduce and broadcast, the library's or yours: not the machine's own.",
    meanings={
        "a group has each of its ranks once": "The last node may have fewer ranks: end its range at comm.size.",
        "only the members make a group": "Only the leaders make the leaders' group, and each rank that of its own "
        "node, whose first rank is `comm.rank // per_node * per_node`.",
    },
)


def nodes_sum_first(run, per_node: int, setting: str) -> None:
    """Check that no number leaves a node before its sender has heard, directly or not, from the whole node."""
    p = len(run.results)
    heard = [{rank: 0.0} for rank in range(p)]  # by rank: whom it has heard from, and since when
    for event in run.trace:
        if event.op == "recv":
            for member in heard[event.peer]:
                heard[event.rank].setdefault(member, event.end)
        elif event.op == "send" and event.nbytes and event.peer // per_node != event.rank // per_node:
            first = event.rank // per_node * per_node
            for member in range(first, min(first + per_node, p)):
                checks.that(
                    heard[event.rank].get(member, math.inf) <= event.start,
                    f"{setting}: rank {event.rank} sends to rank {event.peer}, in another node, before it has heard "
                    f"from rank {member} of its own node. First sum inside each node of `per_node` ranks.",
                )


def drawn_nodes(rng) -> tuple[int, int]:
    """Return a number of ranks, and one of ranks in a node: two to five nodes; the last may be smaller."""
    return whole_number(rng, 11, 15), one_of((3, 5, 6, 7), rng)


def a_vector(p: int, rng) -> list:
    """Return an x for each rank, whose length is drawn."""
    return either_numbers(p, whole_number(rng, 20, 30), rng)


def nodes_have_sum(student, xs: list, per_node: int, **machine):
    """Run it on `xs`, by rank, in nodes of `per_node`; every rank ends with the sum."""
    setting = f"p = {len(xs)}, per_node = {per_node}"
    return has_sum_everywhere(student, "hierarchical_all_reduce", xs, setting, {"per_node": per_node}, **machine)


@exercise.check(points=4, seconds=SECONDS)
def any_nodes(student, rng):
    "The sum on every rank for any p, per_node and shape of x, also when the last node is smaller."
    for p, per_node in (
        (4, 2),
        (6, 3),
        (3, 1),
        (4, 4),
        (1, 4),
        (2, 4),
        (3, 2),
        (5, 2),
        (7, 4),
        (8, 3),
        (9, 4),
        (9, 10),
    ):
        run = nodes_have_sum(student, numbers(p, 3, rng), per_node, alpha=1.0)
        nodes_sum_first(run, per_node, f"p = {p}, per_node = {per_node}")
    nodes_have_sum(student, numbers(3, (2, 2), rng), 2)
    p, per_node = one_of(((4, 2), (6, 3), (5, 2), (4, 4)), rng)
    setting = f"p = {p}, per_node = {per_node}"
    carried(student, rng, lambda: nodes_have_sum(student, numbers(p, 3, rng), per_node), setting)


@exercise.check(points=2, seconds=SECONDS, needs="any_nodes")
def one_leader_per_node(student, rng):
    "Only the first rank of each node talks to other nodes."
    for p, per_node in ((8, 4), (8, 2), (9, 3), (10, 4), drawn_nodes(rng)):
        talking: dict[int, set[int]] = {}  # node -> its ranks that do
        run = nodes_have_sum(student, a_vector(p, rng), per_node)
        for event in sends(run):
            if event.rank // per_node != event.peer // per_node:
                talking.setdefault(event.rank // per_node, set()).add(event.rank)
                talking.setdefault(event.peer // per_node, set()).add(event.peer)
        for node, ranks in talking.items():
            checks.that(
                len(ranks) == 1,
                f"p = {p}, per_node = {per_node}: ranks {', '.join(map(str, sorted(ranks)))} of node {node} all talk "
                "to other nodes. Sum inside the node first; then only its first rank talks to other nodes.",
            )
            checks.that(
                ranks == {node * per_node},
                f"p = {p}, per_node = {per_node}: rank {max(ranks)} of node {node} talks to other nodes. Let its first "
                f"rank do this, rank {node * per_node}.",
            )


@exercise.check(points=2, seconds=SECONDS, needs="any_nodes")
def little_between_nodes(student, rng):
    "The bytes between nodes depend on the number of nodes, not on the ranks in them."
    for p, per_node in ((8, 4), (8, 2), (9, 3), drawn_nodes(rng)):
        run = nodes_have_sum(student, a_vector(p, rng), per_node)
        g, n = nodes(p, per_node), run.given[0][0].nbytes
        crossing = sum(event.nbytes for event in sends(run) if event.rank // per_node != event.peer // per_node)
        most = g * (g.bit_length() + 1) * n  # recursive doubling among g leaders, with what odd ones add
        checks.that(
            crossing <= most,
            f"p = {p}, per_node = {per_node}: {crossing / n:.3g} times the size of x is sent between the nodes; an "
            f"all-reduce among {g} leaders needs at most {most / n:.3g}.",
        )


@exercise.check(points=2, seconds=SECONDS, needs="any_nodes")
def trees_inside(student, rng):
    "Inside a node a tree up and a tree down, between nodes at most a ring's rounds."
    for p, per_node in ((8, 8), (16, 8), (16, 4), (12, 4), drawn_nodes(rng)):
        g, k = nodes(p, per_node), log2_up(per_node)
        run = nodes_have_sum(student, a_vector(p, rng), per_node, alpha=1.0)
        rule = f"2⌈log₂ {per_node}⌉ = {2 * k} inside a node and at most 2({g}-1) = {2 * (g - 1)} between are enough"
        takes_rounds(run, 2 * k + 2 * (g - 1), f"p = {p}, per_node = {per_node}", rule)
        inside = sum(event.rank // per_node == event.peer // per_node for event in sends(run))
        checks.that(
            inside <= 2 * (p - g),
            f"p = {p}, per_node = {per_node}: {inside} messages are sent inside nodes. A tree up and a tree down are "
            "one message each for every rank but the node's first.",
            got=f"{inside} messages",
            expected=f"at most 2({p} - {g}) = {2 * (p - g)}",
        )
        waited_for(run, f"p = {p}, per_node = {per_node}")
