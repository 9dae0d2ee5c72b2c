"""The owner and kind of a file, from only its name."""

import re
import unicodedata
from pathlib import Path

NOISE = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", "__pycache__"}
CANVAS = re.compile(r"(?P<name>\w+?)(?:_LATE)?_(?P<id>\d+)_(?:(?P<attachment>\d+)_(?!$)|text\.html$|link\.html$)")
CANVAS_ANONYMOUS = re.compile(
    r"(?P<name>anon)_(?P<id>[A-Za-z0-9]+)_(?:LATE_)?(?:(?P<attachment>\d+)_(?!$)|text\.html$|link\.html$)"
)
# The first mark counts: the student chooses what follows it.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)")
# An assignment's name is the instructor's; the time of the attempt counts as the number of the upload.
TIME = r"\d{4}(?:-\d\d){5}"
BLACKBOARD = re.compile(rf".+?_(?P<name>[^_]+)_attempt_(?P<attachment>{TIME})(?:_(?!$)|\.txt$)")

SUFFIX = re.compile(r"\.ipynb(?:\.(?:json|txt|download|ipynb))?$", re.IGNORECASE)  # what browsers append
ARCHIVE = re.compile(r"(?:\.ipynb)?\.zip$", re.IGNORECASE)
HANDOUT = re.compile(r"(?:readme|license|licence|instructions|changelog)\b", re.IGNORECASE)  # an instructor's own


def is_notebook(name: str) -> bool:
    """Return whether a file's name is a notebook's, in upper or lower case, even with a browser's suffix."""
    return SUFFIX.search(name) is not None


def is_archive(name: str) -> bool:
    """Return whether a file's name is a zip file's."""
    return ARCHIVE.search(name) is not None


def is_noise(name: str) -> bool:
    """Return whether files of this name come from systems, not people."""
    return name.startswith(".") or name in NOISE


def mark(name: str) -> re.Match[str] | None:
    """Return the mark that Canvas, Moodle or Blackboard puts before a file's name, if any."""
    name = composed(name)
    patterns = (MOODLE, CANVAS_ANONYMOUS, CANVAS, BLACKBOARD)
    return next(filter(None, (pattern.match(name) for pattern in patterns)), None)


def composed(name: str) -> str:
    """Return a name with each letter and its accents as one character: some systems store them apart."""
    return unicodedata.normalize("NFC", name)


def owner(entry: Path) -> str:
    """Return the owner of a top-level file or folder, from its name."""
    name = composed(entry.name)
    if found := mark(name):
        return found["name"] if found.re is BLACKBOARD else f"{found['name']}_{found['id']}"
    stem = ARCHIVE.sub("", SUFFIX.sub("", name)) or name
    return stem if stem == name or not entry.is_dir() else name


def own_name(name: str) -> str:
    """Return the student's name for a file, without a course system's mark."""
    found, name = mark(name), composed(name)
    return name[found.end() :] if found and found.end() < len(name) else name


def attachment(name: str) -> int:
    """Return Canvas's number of an upload, or the time in Blackboard's name; both grow with time. Otherwise 0."""
    found = mark(name)
    return int((found.groupdict().get("attachment") or "0").replace("-", "")) if found else 0
