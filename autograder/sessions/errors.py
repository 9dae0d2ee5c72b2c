"""Errors of calls of the student's code."""

import builtins
from dataclasses import dataclass
from typing import Any

KINDS = ("not_done", "undefined", "signature", "exception", "timeout", "exit", "asks", "unsendable", "forbidden")


@dataclass
class StudentError(Exception):
    """The student's code gave no value. `kind` says why: not_done, undefined, signature, exception, timeout, ended,
    exit, asks, forbidden, unsendable; `text` explains it, and the other fields give the place in the student's code."""

    kind: str
    text: str
    type: str = ""
    bases: str = ""  # Python's own exceptions that it is, whatever its name
    function: str = ""
    line: int = 0
    source: str = ""
    via: str = ""  # the student's line that led there, if the check called another function
    asleep: bool = False  # a time-out of code that has hardly used a processor
    undisturbed: bool = False  # a time-out of code that had a processor to itself

    def __str__(self):
        return self.text

    def is_a(self, kind: builtins.type[Exception]) -> bool:
        """Whether the student's code raised this exception of Python's, or a class derived from it."""
        return self.kind == "exception" and kind.__name__ in self.bases.split()

    @property
    def named(self) -> str:
        """The exception's name; another class that has only the name of one of Python's is called so."""
        is_own = bool(self.bases) and hasattr(builtins, self.type) and self.type not in self.bases.split()
        return f"a class that is only named {self.type}" if is_own else self.type

    @classmethod
    def of(cls, problem: Any) -> "StudentError":
        """Create the error from the other side's report, using only its short plain values."""
        problem = problem if type(problem) is dict else {}
        wanted = dict.fromkeys(("kind", "text", "type", "bases", "function", "source", "via"), str) | {"line": int}
        found = {key: problem[key] for key, kind in wanted.items() if type(problem.get(key)) is kind}
        found = {key: value[:500] if type(value) is str else value for key, value in found.items()}
        known = (
            "not_done",
            "undefined",
            "signature",
            "exception",
            "timeout",
            "exit",
            "asks",
            "unsendable",
            "forbidden",
        )
        if found.get("kind") not in known:
            found["kind"] = "exception"
        return cls(**{"text": "", **found})
