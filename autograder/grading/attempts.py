"""Earlier attempts: each notebook that was graded is kept with its result, and a policy says which one counts.

`RESULTS/.attempts/STUDENT/LAB.HASH.json` has a notebook's place in the order of attempts, its name and its result. The
hash is the notebook's. A notebook that is graded again replaces its own result only.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from autograder.results import LabResult

from .grades import newest_of_each, printable, safe_name
from .store import write_text
from .submission import Submission

FOLDER, POLICY = ".attempts", "policy"
POLICIES = ("last", "first", "best")
Done = Sequence[tuple[Submission, LabResult]]


class Attempt(NamedTuple):
    """A graded notebook: its place in the order (the number of an upload, then its time), its name, and its result."""

    order: tuple[int, float]
    file: str
    result: LabResult

    @property
    def when(self) -> str:
        """Return the time of the file in this machine's time zone, as 2026-11-20 23:59."""
        return f"{datetime.fromtimestamp(self.order[1]):%Y-%m-%d %H:%M}"


def counting(done: Done, out: Path, policy: str = "last") -> list[LabResult]:
    """Keep all graded notebooks of `done` under `out`; return one result for each student and lab, as `policy` says.

    With "first" and "best" notebooks of earlier calls count, too, even if the student's file is gone or damaged now.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}; it must be one of {', '.join(POLICIES)}")
    for submission, result in done:
        _keep(submission, result, out)
    if policy != "last" or (out / FOLDER).is_dir():
        write_text(out / FOLDER / POLICY, policy)
    found: dict[tuple[str, str], LabResult] = {}
    for result in newest_of_each(done):
        earlier = attempts(out, result.student, result.lab)
        if policy == "last" or not earlier:
            found[result.student, result.lab] = noted(result, [each.result.score for each in earlier], policy)
            continue
        for lab in {each.result.lab for each in earlier}:  # several if a file can no longer be read
            of_lab = [each for each in earlier if each.result.lab == lab]
            scores = [each.result.score for each in of_lab]
            found.setdefault((result.student, lab), noted(chosen(of_lab, policy).result, scores, policy))
    return [found[key] for key in sorted(found)]


def noted(result: LabResult, scores: Sequence[float], policy: str = "last") -> LabResult:
    """Say in the result how many attempts there are, with which scores, and which one counts; return it."""
    if len(scores) > 1 and result.status == "graded":
        points = ", ".join(f"{score:g}" for score in scores)
        result.notes.append(f"{len(scores)} attempts with {points} points: the {policy} counts")
    return result


def chosen(found: Sequence[Attempt], policy: str) -> Attempt:
    """Return the attempt that counts; of equally good ones the first."""
    if policy == "best":
        return max(found, key=lambda each: each.result.score)
    return found[0 if policy == "first" else -1]


def attempts(out: Path, student: str = "", lab: str = "") -> list[Attempt]:
    """Return the attempts that are kept under `out`, in their order; of one student or lab, if they are given."""
    folder = safe_name(student) if student else "*"
    found = [_read(path) for path in sorted((out / FOLDER).glob(f"{_literal(folder)}/{lab or '*'}.*.json"))]
    return sorted(found, key=lambda each: (each.result.student, each.result.lab, each.order, each.file))


def policy_of(out: Path) -> str:
    """Return the policy of the last grading into `out`."""
    path = out / FOLDER / POLICY
    return path.read_text(encoding="utf-8") if path.is_file() else "last"


def _keep(submission: Submission, result: LabResult, out: Path) -> None:
    if result.status != "graded" or not submission.digest or submission.path is None:
        return
    content = {"order": submission.order[:2], "file": printable(submission.path.name), "result": result.to_json()}
    name = f"{result.lab}.{submission.digest.hex()[:16]}.json"
    write_text(out / FOLDER / safe_name(result.student) / name, json.dumps(content) + "\n")


def _read(path: Path) -> Attempt:
    content = json.loads(path.read_text(encoding="utf-8"))
    number, time = content["order"]
    return Attempt((number, time), content["file"], LabResult.from_json(content["result"]))


def _literal(name: str) -> str:
    """Return a pattern that matches only this folder; "*" stays a pattern."""
    return name if name == "*" else name.replace("[", "[[]")
