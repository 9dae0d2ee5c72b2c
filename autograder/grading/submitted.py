"""A submitted file: its bytes, read once, or why it cannot be read; and its notebook's lab."""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autograder import exercises
from autograder.authoring import Lab
from autograder.inside.notebook import HAND_IN, SAVE, Notebook, UngradableError
from autograder.walls import scratch
from hpcdl.files import needed_near

from .beside import NOTHING, Along, gather
from .submission import Submission

MAX_BYTES = 64 << 20
BESIDE = "beside.json"  # in a copy's folder
ITSELF = "hand in the file itself"
AGAIN = "grade it again once it can be read"
OF_A_LAB = "hand in the lab's own notebook, or grade it with --lab"


def take(submission: Submission, folder: Path | None = None) -> Submission:
    """Return the submission with its file's bytes, so that the file is not read again.

    They are copied into the private `folder`, or kept in memory without one. If they cannot be read, `refused` gives
    the reason.
    """
    if submission.path is None or submission.digest or submission.refused:
        return submission
    try:
        data = read(submission.path)
    except UngradableError as error:
        return replace(submission, refused=str(error))
    along = gather(submission.beside, read)
    digest = hashlib.sha256(data).digest()
    if along.files or along.left:
        digest = hashlib.sha256(digest + along.packed()).digest()
    taken = replace(submission, digest=digest, copy=folder and _copied(submission.path.name, data, along, folder))
    return taken if taken.copy else replace(taken, content=(data, along))


def alone(student: str, path: Path) -> Submission:
    """Return a submission of one file, with the files near it that it imports or names."""
    try:
        return Submission(student, path, beside=tuple(needed_near(path, read(path))))
    except UngradableError:
        return Submission(student, path)  # grading reports the reason


def _copied(name: str, data: bytes, along: Along, folder: Path) -> Path | None:
    """Return the path of the copy; None if there is no room for it."""
    try:
        place = Path(tempfile.mkdtemp(dir=folder))
        (place / name).write_bytes(data)
        if along.files or along.left:
            (place / BESIDE).write_bytes(along.packed())
    except OSError:
        return None
    return place / name


@contextlib.contextmanager
def copies() -> Iterator[Path]:
    """Provide a folder for copies while the block runs."""
    with scratch.Folder() as folder:
        yield Path(folder)


def discard(submission: Submission) -> None:
    """Remove the copy of a submission that does not need grading."""
    if submission.copy:
        shutil.rmtree(submission.copy.parent, ignore_errors=True)


def held(submission: Submission) -> tuple[bytes, Along]:
    """Return the notebook's bytes and the files that come along; raise UngradableError if there is nothing to grade."""
    submission = take(submission)
    if reason := submission.refused if submission.path else submission.problem:
        raise UngradableError(reason)
    if submission.path is None:
        raise UngradableError("there is no file", HAND_IN)
    if submission.copy is None:
        data, along = submission.content
        return filled(data), along
    packed = submission.copy.with_name(BESIDE)
    return contents(submission.copy), Along.unpacked(packed.read_bytes()) if packed.exists() else NOTHING


def contents(path: Path) -> bytes:
    """Return the bytes of a regular file that is neither empty nor too large; otherwise raise UngradableError."""
    return filled(read(path))


def filled(data: bytes) -> bytes:
    """Return the bytes, if there are any."""
    if not data.strip():
        raise UngradableError("the file is empty", SAVE)
    return data


def read(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file; UngradableError says why there are none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return _read(file, most)
    except OSError as error:
        if os.path.islink(path):
            raise UngradableError("the file cannot be read: it is a link", ITSELF) from None
        raise UngradableError(f"the file cannot be read: {(error.strerror or 'error').lower()}", AGAIN) from None
    except ValueError as error:  # a name with a NUL
        raise UngradableError(f"the file cannot be read: {error}", AGAIN) from None


def _read(file, most: int) -> bytes:
    info = os.fstat(file.fileno())
    if not stat.S_ISREG(info.st_mode):
        raise UngradableError("it is not a regular file", ITSELF)
    data = file.read(most + 1) if info.st_size <= most else b""
    if max(info.st_size, len(data)) > most:
        advice = "clear its outputs" if most == MAX_BYTES else "hand in a smaller one"
        raise UngradableError(f"the file has {_size(max(info.st_size, len(data)))}, more than {_size(most)}", advice)
    return data


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def lab_of(notebook: Notebook, path: Path) -> Lab:
    """Return the lab a notebook belongs to: by its metadata, or else its functions, or else its file name."""
    if notebook.slug in exercises.LABS:
        return exercises.load(notebook.slug)
    names = notebook.names
    labs = [exercises.load(slug) for slug in exercises.LABS]
    found = {lab.slug: sum(f in names for e in lab.exercises.values() for f in e.functions) for lab in labs}
    best = max(labs, key=lambda lab: found[lab.slug])
    if found[best.slug]:
        return best
    named = [lab for lab in labs if lab.slug in path.stem]
    if named:
        return named[0]
    raise UngradableError("it belongs to no lab: it defines none of the functions that the labs ask for", OF_A_LAB)
