"""What a harness writes down while the student's code runs: what is read, written and asked for, and when.

In grading the book is kept on the grader's side, which also takes the time that an entry takes. In a notebook, and on
a real MPI, it is kept here.
"""

from collections.abc import Callable
from typing import Any

from hpcdl.comm.base import Communicator

Entry = tuple[str, str, Any, float, float]  # what was done, to what, the content, its begin and end in virtual time


class Book:
    """Entries of this rank; each entry of a kind in `takes` takes so many virtual seconds."""

    def __init__(self, comm: Communicator, takes: dict[str, float]):
        self.comm, self.takes, self.entries = comm, takes, list[Entry]()

    def note(self, kind: str, name: str = "", what: Any = None) -> None:
        begin = self.comm.clock()
        if kind in self.takes:
            self.comm.compute(self.takes[kind])
        self.entries.append((kind, name, what, begin, self.comm.clock()))


class WireBook:
    """The same, kept by the grader."""

    def __init__(self, operate: Callable):
        self.operate = operate

    def note(self, kind: str, name: str = "", what: Any = None) -> None:
        self.operate("note", kind, name, what)


def of_kind(entries: list[Entry], kind: str) -> list[Entry]:
    return [entry for entry in entries if entry[0] == kind]
