"""Find the folder in which students' files begin: a download may have folders around it, and files next to those."""

import os
from collections.abc import Iterator
from pathlib import Path

from .folders import entries_of, files_below, in_order
from .owners import is_archive, is_notebook, mark, owner
from .submission import Submission

COURSE_FILES = {"nbgrader_config.py", "gradebook.db", "source", "release"}  # next to `submitted` in an nbgrader course
MOST_NAMED = 10
DEEPEST = 3  # folders around those of students


def of_students(name: str, is_zip: bool, entries: list[Path]) -> tuple[list[Path], list[Path]]:
    """Return the entries of students, and the files next to the folders around them.

    They are the entries of nbgrader's `submitted`, those below the top folders of a zip file called `name`, or
    `entries` themselves.
    """
    names = {entry.name for entry in entries}
    course = "submitted" in names and (names & COURSE_FILES or names == {"submitted"})
    if course and os.path.isdir(below := entries[0].with_name("submitted")):
        return in_order(os.listdir(below), below), []
    top = _top(entries)
    inner = entries_of(top) if top else []
    is_around = is_zip and (_are_students(inner) or (top is not None and top.name.casefold() == name.casefold()))
    if top and (is_around or any(mark(entry.name) for entry in inner)):
        found, beside = of_students(name, is_zip, inner)
        return found, [entry for entry in entries if entry != top] + beside
    return entries, []


def _top(entries: list[Path]) -> Path | None:
    """Return the only folder, if no entry next to it is handed in."""
    folders = [entry for entry in entries if os.path.isdir(entry) and not os.path.islink(entry)]
    files = [entry for entry in entries if entry not in folders]
    handed_in = any(mark(e.name) for e in entries) or any(is_notebook(e.name) or is_archive(e.name) for e in files)
    return folders[0] if len(folders) == 1 and not handed_in else None


def _are_students(entries: list[Path], deepest: int = DEEPEST) -> bool:
    """Return whether the entries of a folder belong to several students, or hold a folder whose entries do."""
    owners = {owner(entry) for entry in entries if is_archive(entry.name) or _holds_notebooks(entry)}
    if len(owners) > 1 or any(mark(entry.name) for entry in entries):
        return True
    top = _top(entries)
    return top is not None and deepest > 1 and _are_students(entries_of(top), deepest - 1)


def _holds_notebooks(folder: Path) -> bool:
    return any(is_notebook(path.name) or is_archive(path.name) for path in files_below(folder, []))


def sentences(folder: Path, found: list[Submission], strays: list[str]) -> Iterator[str]:
    """Yield what an instructor should know of a folder: what belongs to no student, and a class that looks like one."""
    if strays:
        more = f" and {len(strays) - MOST_NAMED} more" if len(strays) > MOST_NAMED else ""
        yield f"Left out, since no student is named: {', '.join(strays[:MOST_NAMED])}{more}."
    paths = [each.path.relative_to(folder) for each in found if each.path and folder in each.path.parents]
    inner = {path.parts[:2] for path in paths if len(path.parts) > 2}
    if len({each.student for each in found}) == 1 and len(inner) > 1:
        top = folder / paths[0].parts[0]
        yield (
            f"All {len(paths)} notebooks count as those of one student, {top.name!r}. If its {len(inner)} folders are "
            f"students', grade {top} instead."
        )
