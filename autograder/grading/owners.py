"""Whose a file is, and what kind of file it is, by its name alone."""

import re
from pathlib import Path

NOISE = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", "__pycache__"}
CANVAS = re.compile(r"(?P<name>\w+?)(?:_LATE)?_(?P<id>\d+)_(?:(?P<attachment>\d+)_(?!$)|text\.html$|link\.html$)")
CANVAS_ANONYMOUS = re.compile(
    r"(?P<name>anon)_(?P<id>[A-Za-z0-9]+)_(?:LATE_)?(?:(?P<attachment>\d+)_(?!$)|text\.html$|link\.html$)"
)
# The first mark counts: a student chooses what comes behind it.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)")

SUFFIX = re.compile(r"\.ipynb(?:\.(?:json|txt|download|ipynb))?$", re.IGNORECASE)  # what browsers append
ARCHIVE = re.compile(r"(?:\.ipynb)?\.zip$", re.IGNORECASE)
HANDOUT = re.compile(r"(?:readme|license|licence|instructions|changelog)\b", re.IGNORECASE)  # an instructor's own


def is_notebook(name: str) -> bool:
    """Whether a file's name is that of a notebook, in any case, and with what browsers append."""
    return SUFFIX.search(name) is not None


def is_archive(name: str) -> bool:
    """Whether a file's name is that of a zip file."""
    return ARCHIVE.search(name) is not None


def is_noise(name: str) -> bool:
    """Whether systems, not people, make files of this name."""
    return name.startswith(".") or name in NOISE


def mark(name: str) -> re.Match[str] | None:
    """The mark that Canvas or Moodle puts in front of a file's name, if there is one."""
    return next(filter(None, (pattern.match(name) for pattern in (MOODLE, CANVAS_ANONYMOUS, CANVAS))), None)


def owner(entry: Path) -> str:
    """Whose a file or folder of the top level is, by its name."""
    if found := mark(entry.name):
        return f"{found['name']}_{found['id']}"
    stem = ARCHIVE.sub("", SUFFIX.sub("", entry.name)) or entry.name
    return stem if stem == entry.name or not entry.is_dir() else entry.name


def own_name(name: str) -> str:
    """The name that the student gave a file: without the mark of Canvas or Moodle."""
    found = mark(name)
    return name[found.end() :] if found and found.end() < len(name) else name


def attachment(name: str) -> int:
    """Canvas's number of an upload, which grows with time; 0 if there is none."""
    found = mark(name)
    return int(found.groupdict().get("attachment") or 0) if found else 0
