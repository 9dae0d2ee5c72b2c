"""Why a call of the student's code gave no value."""

from dataclasses import dataclass
from typing import Any

KINDS = ("not_done", "undefined", "signature", "exception", "timeout", "exit", "asks", "unsendable", "forbidden")


@dataclass
class StudentError(Exception):
    """The student's code gave no value. `kind` says why: not_done, undefined, signature, exception, timeout, ended,
    exit, asks, forbidden, unsendable; `text` says it in words, and the rest says where in the student's own code."""

    kind: str
    text: str
    type: str = ""
    function: str = ""
    line: int = 0
    source: str = ""
    via: str = ""  # the line of theirs that led there, where the check called another function

    def __str__(self):
        return self.text

    @classmethod
    def of(cls, problem: Any) -> "StudentError":
        """From the other side's report, of which only short plain values are taken over."""
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
