"""Merge the records of all shards into the files of `autograder grade`: the same bytes for any number of shards.

A record is found by the submission's content, so it does not matter which shard wrote it, how often it was killed, or
whether there were 3 shards yesterday and 64 today. Seconds, which differ from run to run, stay in the records.
"""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder.authoring import Lab
from autograder.grading import attempts, grades
from autograder.grading.submission import Submission
from autograder.grading.submitted import take
from autograder.results import LabResult

from .records import FOLDER, grader, key_of, lines
from .shard import ClassShard


class MergeError(Exception):
    """The records do not make a complete result."""


@dataclass
class ResultPlace:
    """The position of a recorded result, with the fields that select among a student's results."""

    path: Path
    begin: int
    student: str
    lab: str
    message: str
    status: str
    score: float
    retry: bool

    def read(self) -> LabResult:
        with open(self.path, "rb") as file:
            file.seek(self.begin)
            result = LabResult.from_json(json.loads(file.readline())["result"])
        result.message = self.message
        return without_times(result)


def merge(todo: list[Submission], out: Path, secret: bytes, only: Lab | None = None, partial: bool = False) -> int:
    """Write `grades.csv` and the result files under `out` from its records; return the number of submissions.

    Raises MergeError if a submission has no record, unless `partial`, or if there are only other graders' records.
    """
    places: dict[str, ResultPlace] = {}
    for name in sorted(files(out, secret)):
        places.update(recorded(name, places))
    taken = {submission: take(submission) for submission in todo}
    keys = {submission: key_of(each, secret, only) for submission, each in taken.items()}
    missing = [submission for submission, key in keys.items() if key not in places]
    if missing and not partial:
        raise MergeError(_missing(missing, len(todo), out, secret))
    found = [(submission, places[key]) for submission, key in keys.items() if key in places]
    chosen, tries = grades.newest_of_each(found), defaultdict[tuple[str, str], dict](dict)
    for submission, place in found:
        if place.status == "graded" and submission.path and (digest := taken[submission].digest):
            tries[place.student, place.lab][digest] = (*submission.order[:2], submission.path.name, place.score)
    scores = {of: [score for *_, score in sorted(each.values())] for of, each in tries.items()}
    grades.write((attempts.noted(place.read(), scores.get((place.student, place.lab), [])) for place in chosen), out)
    return len(chosen)


def files(out: Path, secret: bytes) -> list[Path]:
    return list((out / FOLDER / grader(secret)).glob("*-of-*.jsonl"))


def recorded(path: Path, before: dict[str, ResultPlace]) -> Iterator[tuple[str, ResultPlace]]:
    """Return the keys and places in a file, except those with a better earlier place; our own failures do not count."""
    for begin, key, content in lines(path):
        result = LabResult.from_json(content)
        place = ResultPlace(
            path, begin, result.student, result.lab, result.message, result.status, result.score, result.retry
        )
        if key not in before or before[key].retry:
            yield key, place


def without_times(result: LabResult) -> LabResult:
    """Return the result without its seconds."""
    result.seconds = 0.0
    for exercise in result.exercises:
        for check in exercise.checks:
            check.seconds = 0.0
    return result


def _missing(missing: list[Submission], total: int, out: Path, secret: bytes) -> str:
    said = f"{len(missing):,} of {total:,} submissions have no record in {out / FOLDER}, {missing[0].student!r} first"
    own = files(out, secret)
    if own:
        of = max(int(path.stem.partition("-of-")[2]) for path in own)
        shards = [str(i) for i in range(1, of + 1) if any(ClassShard(i, of).holds(one) for one in missing)]
        return f"{said}: run {_listed(shards)} of {of} again, or give --partial for what there is"
    if others := sorted({path.parent.name for path in (out / FOLDER).glob("*/*.jsonl")}):
        return (
            f"{said}, but there are records of another version of the grader or another secret "
            f"({_listed(others)}; this is {grader(secret)}): merge with that version and secret, or grade again"
        )
    return f"{said}: run `autograder grade ... --out {shlex.quote(str(out))} --shard 1/1`, or more shards"


def _listed(names: list[str], most: int = 8) -> str:
    kind = "shard" if len(names) == 1 else "shards"
    words = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"{kind} {words}" if all(name.isdigit() for name in names) else words
