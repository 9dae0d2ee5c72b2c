"""A harness's log while the student's code runs: what is read, written and requested, and when.

In grading the book is on the grader's side, which also lets virtual time pass for an entry. In a notebook, and with a
real MPI, it is here.
"""

from collections.abc import Callable
from typing import Any

from hpcdl.comm.base import Communicator

Entry = tuple[str, str, Any, float, float]  # operation, object, content, begin and end in virtual time


class Moment(float):
    """A virtual time in a result: another machine has another."""


class Book:
    """Entries of this rank; `takes` gives virtual seconds by kind of entry."""

    def __init__(self, comm: Communicator, takes: dict[str, float]):
        self.comm, self.takes, self.entries = comm, takes, list[Entry]()

    def note(self, kind: str, name: str = "", what: Any = None) -> None:
        begin = self.comm.clock()
        if kind in self.takes:
            self.comm.compute(self.takes[kind])
        self.entries.append((kind, name, what, begin, self.comm.clock()))


class WireBook:
    """A book on the grader's side."""

    def __init__(self, operate: Callable):
        self.operate = operate

    def note(self, kind: str, name: str = "", what: Any = None) -> None:
        self.operate("note", kind, name, what)


def of_kind(entries: list[Entry], kind: str) -> list[Entry]:
    return [entry for entry in entries if entry[0] == kind]
