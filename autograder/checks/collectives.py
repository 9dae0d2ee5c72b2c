"""Collectives of a process group, as the grader's machine carried them.

A group in the student's process lists its collectives. Their messages are the grader's: `carried_calls` compares both,
so that a list that leaves one out, or makes it smaller, is no help.
"""

from typing import Any, NamedTuple

from .ladder import CheckFailure

ELEMENT = 16  # bytes of the largest element: chunks differ by one element
OF_GROUPS = ("send", "broadcast")


class CollectiveCall(NamedTuple):
    """A collective: its name, the bytes of this rank's result or sum, and the virtual time of its first message."""

    name: str
    nbytes: int
    start: float


def carried_calls(run: Any, rank: int, calls: list, setting: str) -> list[CollectiveCall]:
    """Return the collectives `calls`, (name, bytes), with times; raise CheckFailure if the messages differ.

    `calls` are all collectives of the rank's process group; the rank sends nothing else. More than one rank.
    """
    p, found = len(run.results), list[CollectiveCall]()
    events = [event for event in run.trace if event.rank == rank and event.op in OF_GROUPS]
    at = 0
    for name, nbytes in calls:
        sizes = messages_of(name, nbytes, p, rank)
        mine = events[at : at + len(sizes)]
        at += len(sizes)
        fits = len(mine) == len(sizes) and all(
            event.op == op and abs(event.nbytes - size) <= ELEMENT
            for event, (op, size) in zip(mine, sizes, strict=True)
        )
        if not fits:
            raise CheckFailure(f"{setting}: {differs(rank)}", got=f"{name} of {nbytes} bytes", expected="its messages")
        found.append(CollectiveCall(name, nbytes, mine[0].start if mine else found[-1].start if found else 0.0))
    if at != len(events):
        more = f"{len(events) - at} messages more"
        raise CheckFailure(f"{setting}: {differs(rank)}", got=more, expected=f"those of {len(calls)} collectives")
    return found


def differs(rank: int) -> str:
    return (
        f"the messages that rank {rank} sends are not those of the collectives that its process group has noted. "
        "Leave the group's notes and its communicator alone."
    )


def messages_of(name: str, nbytes: int, p: int, rank: int) -> list[tuple[str, float]]:
    """Return what one rank of `p` sends in a collective: operations and bytes. Rings send a p-th each time."""
    if name == "broadcast":
        return [("broadcast", nbytes)]
    if name == "scatter":
        return [("send", nbytes)] * (p - 1 if rank == 0 else 0)
    return [("send", nbytes / p)] * ((p - 1) * (2 if name == "all_reduce" else 1))
