"""Error reports that fit on one screen: what went wrong on which rank, at which line, and what to do about it."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from hpcdl.cluster.deadlock import explain
from hpcdl.comm.location import OURS, SourceLine, caller, is_own

_ENTRY = str(Path(__file__).with_name("engine") / "__init__.py")  # its `call` runs the user's function
SHOWN = 6  # groups of ranks, and lines of a stack: one screen


class ClusterError(RuntimeError):
    """A run failed, or the engines cannot start; the message is for people, `reports` (by rank) for programs."""

    def __init__(self, message: str, reports: "list[RankReport] | None" = None):
        super().__init__(message)
        self.reports = reports or []

    def _render_traceback_(self):
        """Show only the message in a notebook; a traceback through this library would hide it."""
        return [f"{type(self).__name__}: {self}"]


class StoppedRunError(KeyboardInterrupt):
    """The user stopped a run, or the start of the engines; a notebook shows only the sentence."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass
class RankReport:
    """How a run ended on one rank."""

    rank: int
    end: str  # "returned", "raised", "stopped" (when asked to), "silent" (did not stop), "died"
    value: bytes | None = None
    stack: list[SourceLine] = field(default_factory=list)
    waiting: dict | None = None  # {"text": "recv(source=1)", "ranks": [["source", 1]]}
    error: str = ""

    @classmethod
    def answered(cls, rank: int, outcome: dict) -> "RankReport":
        outcome = dict(outcome)
        return cls(rank, outcome.pop("end"), stack=_user_part(outcome.pop("stack", [])), **outcome)

    @classmethod
    def silent(cls, rank: int, box: dict) -> "RankReport":
        return cls(rank, "silent", stack=_user_part(box.get("stack", [])), waiting=box.get("waiting"))

    @classmethod
    def dead(cls, rank: int, box: dict) -> "RankReport":
        crash = box.get("crash", "")
        stack = _crash_stack(crash) or box.get("stack", [])
        cause = box.get("end") or _first_line(crash)
        return cls(rank, "died", stack=_user_part(stack), waiting=box.get("waiting"), error=cause)

    @property
    def location(self) -> SourceLine | None:
        """Return the innermost line of the user's code."""
        return caller(self.stack)


def _user_part(stack) -> list[SourceLine]:
    """Return the stack from the user's function inwards."""
    lines = [SourceLine(*line) for line in stack]
    entries = [i for i, line in enumerate(lines) if line.file == _ENTRY and line.function == "call"]
    return lines[entries[-1] + 1 :] if entries else lines


def _crash_stack(text: str) -> list[SourceLine]:
    """Return the stack of the crashed thread, from Python's faulthandler, outermost call first."""
    crashed = text.partition("Current thread")[2].partition("\n\n")[0]
    calls = re.findall(r'File "(.+)", line (\d+) in (.+)', crashed)
    return [SourceLine(file, int(line), function) for file, line, function in reversed(calls)]


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].removeprefix("Fatal Python error: ") if text.strip() else ""


def diagnose(reports: list[RankReport], timeout: float, restarting: bool, deadlocked: bool = False) -> str:
    """Return the message of a failed run; `deadlocked` if it was ended because of a deadlock, before its time limit."""
    raised = [report for report in reports if report.end == "raised"]
    died = [report for report in reports if report.end == "died"]
    if any(report.error for report in died):
        died = [report for report in died if report.error]  # mpiexec ended the others because of it
    culprits = died or raised
    if culprits:
        lines = _grouped(culprits, _failure)
        others = [report for report in reports if report not in culprits and report.end in ("stopped", "silent")]
        lines += _grouped(others, lambda report: f"{_activity(report)} and had to stop")
    else:
        unfinished = [report for report in reports if report.end != "returned"]
        waiting = {report.rank: report.waiting for report in unfinished if report.waiting}
        returned = {report.rank for report in reports if report.end == "returned"}
        if deadlocked and waiting:
            lines = [f"{_ranks([report for report in unfinished if report.waiting])} would wait forever."]
        else:
            lines = [f"{_ranks(unfinished)} did not return within {timeout:g} s."]
        lines += _grouped(unfinished, lambda report: f"{_activity(report)}{_stack_of(report)}")
        lines += explain(waiting, returned)
    return "\n".join([*lines, _afterwards(restarting)])


def _grouped(reports: list[RankReport], describe) -> list[str]:
    """Return one line for each group of ranks with the same outcome."""
    groups = defaultdict(list)
    for report in reports:
        groups[describe(report)].append(report)
    lines = [f"{_ranks(members)} {text}" for text, members in groups.items()]
    return lines[:SHOWN] + ([f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])


def _failure(report: RankReport) -> str:
    if report.end == "raised":
        text = f"raised {report.error}{_at(report)}"
        inner = report.stack[-1] if report.stack else None
        if inner is None or inner == report.location or inner.file.startswith(OURS):
            return text
        return f"{text}\n    raised in {inner}, {inner.function}"
    if report.error:
        return f"died ({report.error}){_at(report)}"
    seen = f"; it was last seen at {report.location.shown()}" if report.location else ""
    return f"died (its process was killed from outside, for lack of memory perhaps){seen}"


def _activity(report: RankReport) -> str:
    if report.waiting:
        return f"stood in {report.waiting['text']}{_at(report)}"
    return f"ran{_at(report)}"


def _at(report: RankReport) -> str:
    return f" at {report.location.shown()}" if report.location else ""


def _stack_of(report: RankReport) -> str:
    """Return the calls that led there, if there was more than one."""
    own = list(filter(is_own, report.stack))
    if len(own) < 2:
        return ""
    return "".join(f"\n    {line}, in {line.function}: {line.source}" for line in own[-SHOWN:])


def _ranks(reports: list[RankReport]) -> str:
    ranks = [report.rank for report in reports]
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _afterwards(restarting: bool) -> str:
    if restarting:
        return "The engines are started again: variables in them are gone, the notebook's are untouched; run again."
    return "The engines are ready for the next run."
