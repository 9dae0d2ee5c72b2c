"""A submitted file: its bytes, where it is a file that can be read, and the lab that its notebook belongs to."""

import os
import stat
from pathlib import Path

from autograder import exercises
from autograder.authoring import Lab
from autograder.inside.notebook import Notebook, UngradableError

MAX_BYTES = 64 << 20


def contents(path: Path) -> bytes:
    """The bytes of a regular file that is not too large; UngradableError says why there are none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = "it is a link" if path.is_symlink() else (error.strerror or "error").lower()
        raise UngradableError(f"the file cannot be read: {reason}") from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise UngradableError("it is not a regular file")
        if info.st_size > MAX_BYTES:
            raise UngradableError(
                f"the file has {info.st_size >> 20} MiB, more than {MAX_BYTES >> 20}: clear its outputs"
            )
        data = file.read(MAX_BYTES + 1)
    if not data.strip():
        raise UngradableError("the file is empty")
    return data


def lab_of(notebook: Notebook, path: Path) -> Lab:
    """The lab a notebook belongs to: by its metadata, or else its functions, or else its file name."""
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
    raise UngradableError("it belongs to no lab: it defines none of the functions that the labs ask for")
