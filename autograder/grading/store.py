"""Stored results: written atomically, found by a hash of everything they depend on, one grader per folder."""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from autograder.authoring import Lab
from autograder.results import SCHEMA, LabResult
from hpcdl.files import written_whole

from .submission import Submission
from .submitted import take

PACKAGE = Path(__file__).resolve().parents[1]
PROGRAM = (PACKAGE, PACKAGE.parent / "hpcdl", PACKAGE.parent / "labs" / "source")


class BusyError(Exception):
    """Another grader is at work on the same folder of results."""


class ResultStore:
    """Results by key under `folder`, where a killed batch finds its work again; None stores nothing."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def load(self, key: str) -> LabResult | None:
        """Return the stored result, or None if none can be read."""
        if self.folder is None or not key:
            return None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return LabResult.from_json(json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8")))
        return None

    def save(self, key: str, result: LabResult) -> None:
        """Store a result; if there is no room for it, the next batch computes it again."""
        if self.folder is not None and key:
            with contextlib.suppress(OSError):
                write_json(result, self.folder / f"{key}.json")


def key_of(submission: Submission, secret: bytes, only: Lab | None, tier: str) -> str:
    """Return a hash of everything that a result depends on: file, student, checks, versions, secret, tier; "" if no
    file was read."""
    submission = take(submission)
    if submission.path is None or not submission.digest:
        return ""
    name = os.fsencode(f"{submission.student}\0{submission.path.name}\0{submission.problem}")
    parts = [name, secret, (only.slug if only else "").encode(), tier.encode(), checks_and_versions()]
    parts += [str(submission.times).encode()] * bool(submission.times)
    digests = [submission.digest, *(hashlib.sha256(part).digest() for part in parts)]
    return hashlib.sha256(b"".join(digests)).hexdigest()


@cache
def checks_and_versions() -> bytes:
    """Return a hash of the autograder's files, including the checks, of hpcdl, the solutions, and the versions
    below."""
    digest = hashlib.sha256(f"{SCHEMA} {sys.version} {torch.__version__}".encode())
    for path in sorted(path for folder in PROGRAM for path in folder.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE.parent)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock `folder` against other graders; the system releases the lock when this process ends in any way."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / ".lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read(20).strip() or "another process"
            raise BusyError(
                f"{folder} is in use by another grader (process {holder}): wait for it, or give another --out"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def write_json(result: LabResult, path: Path) -> None:
    write_text(path, json.dumps(result.to_json(), indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file of results, and create its folder if needed; names may hold bytes that are not UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path, errors="backslashreplace", newline="") as file:
        file.write(text)
