"""Errors of calls of the student's code."""

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
    function: str = ""
    line: int = 0
    source: str = ""
    via: str = ""  # the student's line that led there, if the check called another function
    asleep: bool = False  # a time-out of code that has hardly used a processor
    undisturbed: bool = False  # a time-out of code that had a processor to itself

    def __str__(self):
        return self.text

    @classmethod
    def of(cls, problem: Any) -> "StudentError":
        """Create the error from the other side's report, using only its short plain values."""
        problem = problem if type(problem) is dict else {}
        wanted = {"kind": str, "text": str, "type": str, "function": str, "line": int, "source": str, "via": str}
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
