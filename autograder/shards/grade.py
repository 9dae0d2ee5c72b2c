"""Grade one shard: all submissions without a record."""

from collections.abc import Iterator

from autograder.authoring import Lab
from autograder.grading import batch
from autograder.grading.submission import Submission
from autograder.grading.submitted import copies, discard, take
from autograder.results import LabResult

from .records import Records, key_of


def grade(
    todo: list[Submission],
    records: Records,
    secret: bytes,
    only: Lab | None = None,
    lanes: int = 1,
    mpi: bool = False,
    allow_weak: bool = False,
) -> Iterator[LabResult | None]:
    """Grade the submissions of a shard and record them; yield each when it is ready, or None for one that already has a
    record."""
    rest = {}
    with copies() as folder:
        for submission in todo:
            taken = take(submission, folder)
            key = key_of(taken, secret, only)
            if key in records.done:
                discard(taken)
                yield None
            else:
                rest[taken] = key
        for submission, result in batch.grade_all([*rest], secret, only, None, lanes, mpi, allow_weak):
            records.add(rest[submission], result)
            yield result
