"""Records of a shard: one appended line of JSON per submission, so that a kill costs only the last line.

    OUT/records/<grader>/1-of-64.jsonl

`<grader>` is a hash of the grader's version and the course's secret: results of two graders never mix.
"""

import contextlib
import hashlib
import hmac
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from autograder.authoring import Lab
from autograder.grading import store
from autograder.grading.submission import Submission
from autograder.grading.submitted import take
from autograder.results import LabResult

from .shard import ClassShard

FOLDER = "records"


def grader(secret: bytes) -> str:
    """Return twelve digits of a hash of the grader's files and environment, and eight of the secret's hash, which do
    not reveal it."""
    version = hashlib.sha256(store.checks_and_versions()).hexdigest()[:12]
    return f"{version}-{hmac.new(secret, b'records', hashlib.sha256).hexdigest()[:8]}"


def key_of(submission: Submission, secret: bytes, only: Lab | None) -> str:
    """Return the key of a submission's record: a hash of its content, or of the reason why it cannot be read."""
    submission = take(submission)
    if key := store.key_of(submission, secret, only, "any machine"):
        return key
    name = submission.path.name if submission.path else ""
    said = os.fsencode(f"{submission.student}\0{name}\0{submission.problem}")
    return "unread-" + hmac.new(secret, said, hashlib.sha256).hexdigest()


class Records:
    """The records of one shard, opened for appending. A context manager; raises BusyError if another process appends to
    them."""

    file: IO[bytes]  # set by `__enter__`
    done: set[str]  # keys of submissions that are done

    def __init__(self, out: Path, secret: bytes, shard: ClassShard):
        self.path = out / FOLDER / grader(secret) / f"{shard.index}-of-{shard.of}.jsonl"
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> "Records":
        self.stack.enter_context(store.locked(self.path.with_suffix("")))
        self.file = self.stack.enter_context(open(self.path, "ab+"))
        self.done = {key for _, key, result in lines(self.path) if not result.get("retry")}
        _end_line(self.file)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def add(self, key: str, result: LabResult) -> None:
        """Append a result; it is on the disk when this returns."""
        self.file.write(json.dumps({"key": key, "result": result.to_json()}).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def _end_line(file: IO[bytes]) -> None:
    """End an incomplete line, so that the next record begins on a new line."""
    size = file.seek(0, os.SEEK_END)
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        file.write(b"\n")


def lines(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the offset, key and result of each complete line in a file of records."""
    with open(path, "rb") as file:
        begin = 0
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                content = json.loads(line)
                yield begin, content["key"], content["result"]
            begin += len(line)
