"""Finds the submissions in whatever a course system hands out: a folder or a zip file, and whose each file is.

| layout | what it looks like |
|---|---|
| plain | `<student>/anything.ipynb`, `<student>.ipynb`, `<student>.zip` |
| nbgrader | `submitted/<student>/<assignment>/*.ipynb`, from the course folder or from `submitted` |
| Canvas | `lastfirst_[LATE_]USER_ATTACHMENT_name.ipynb` (`get_filename` in canvas-lms, `lib/content_zipper.rb`) |
| Moodle | `Full name_ID_assignsubmission_file[_]/...` or as a prefix (moodle, `mod/assign/classes/downloader.php`) |

A student of Canvas or Moodle is called by name and number, `lovelaceada_4711`, so that a sheet finds the number again.
"""

import contextlib
import os
import re
import stat
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from autograder.walls import scratch

NOISE = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX"}
COURSE_FILES = {"nbgrader_config.py", "gradebook.db", "source", "release"}  # beside `submitted` in a course of nbgrader
CANVAS = re.compile(r"(?P<name>\w+?)(?:_LATE)?_(?P<id>\d+)_(?:\d+_(?!$)|text\.html$|link\.html$)")
CANVAS_ANONYMOUS = re.compile(r"(?P<name>anon)_(?P<id>[A-Za-z0-9]+)_(?:LATE_)?(?:\d+_(?!$)|text\.html$|link\.html$)")
MOODLE = re.compile(r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)")

MAX_MEMBERS = 20_000
MAX_CLASS = 2 << 30  # bytes of all notebooks and inner zip files of a whole class
MAX_STUDENT = 128 << 20  # the same of one student's zip file
MAX_MEMBER = 65 << 20  # bytes of one of them; a notebook above 64 MiB is refused when it is read
DEEPEST = 2  # a download of the class that holds the zip file of a student


@dataclass(frozen=True)
class Submission:
    """A student and the file that counts; without a file, `problem` says why there is none."""

    student: str
    path: Path | None
    problem: str = ""


def submissions(folder: Path) -> list[Submission]:
    """What is in a folder or zip file of any layout above, in the order of its names. Nothing in it raises."""
    if folder.is_file() and folder.suffix.lower() != ".zip":
        return _of_student(owner(folder), [folder])
    root, problems = _opened(folder, MAX_CLASS)
    students: dict[str, list[Path]] = {}
    for entry in _visible(_students_root(root)):
        students.setdefault(owner(entry), []).append(entry)
    found = [submission for student, entries in students.items() for submission in _of_student(student, entries)]
    return found + [Submission(folder.name, None, problem) for problem in problems]


def owner(entry: Path) -> str:
    """Whose a file or folder of the top level is, by its name."""
    for pattern in (MOODLE, CANVAS_ANONYMOUS, CANVAS):
        if match := pattern.match(entry.name):
            return f"{match['name']}_{match['id']}"
    known = entry.suffix.lower() in (".ipynb", ".zip") and not entry.is_dir()
    return entry.stem if known else entry.name


def _students_root(root: Path) -> Path:
    """`submitted` in a course folder of nbgrader, else the folder itself."""
    names = {entry.name for entry in _visible(root)}
    course = "submitted" in names and (names & COURSE_FILES or names == {"submitted"})
    return root / "submitted" if course and (root / "submitted").is_dir() else root


def _visible(folder: Path) -> list[Path]:
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name not in NOISE]
    return sorted(entries, key=lambda entry: os.fsencode(entry.name))


def _of_student(student: str, entries: list[Path]) -> list[Submission]:
    notebooks: list[Path] = []
    problems: list[str] = []
    for entry in entries:
        found, wrong = _notebooks(entry)
        notebooks, problems = notebooks + found, problems + wrong
    if notebooks:
        return [Submission(student, path) for path in notebooks]
    return [Submission(student, None, "; ".join(dict.fromkeys(problems)))]


def _notebooks(entry: Path, depth: int = 1) -> tuple[list[Path], list[str]]:
    """The notebooks in a file, folder or zip file, and what is wrong where there are none."""
    if entry.suffix == ".ipynb" and not (entry.is_dir() and not entry.is_symlink()):
        return [entry], []
    if entry.suffix.lower() == ".zip" and entry.is_file():
        if depth > DEEPEST:
            return [], [f"{entry.name!r} is a zip file inside a zip file of a zip file"]
        folder, problems = _opened(entry, MAX_STUDENT)
        found, wrong = _inside(folder, depth + 1, "there is no notebook (.ipynb) in the zip file")
        return found, problems or wrong
    if entry.is_dir() and not entry.is_symlink():
        return _inside(entry, depth, "there is no notebook (.ipynb) in the student's folder")
    return [], [f"{entry.name!r} is not a notebook (.ipynb) and not a student's folder"]


def _inside(folder: Path, depth: int, nothing: str) -> tuple[list[Path], list[str]]:
    notebooks: list[Path] = []
    problems: list[str] = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") or part in NOISE for part in parts):
            continue
        if path.suffix == ".ipynb" or (path.suffix.lower() == ".zip" and path.is_file()):
            found, wrong = _notebooks(path, depth) if not path.is_dir() else ([], [])
            notebooks, problems = notebooks + found, problems + wrong
    return notebooks, problems or [nothing]


# ------------------------------------------------------------------------------------------------- zip files

_UNPACKED: list[scratch.Folder] = []  # removed when the program ends: the grades are made by then


def _opened(source: Path, room: int) -> tuple[Path, list[str]]:
    """The folder itself, or a fresh folder with what counts of a zip file, and what could not be taken from it."""
    if source.is_dir():
        return source, []
    _UNPACKED.append(scratch.Folder())
    target = Path(_UNPACKED[-1].name)
    return target, unpack(source, target, room)


def unpack(archive: Path, target: Path, room: int) -> list[str]:
    """Write the files of a zip file under `target`, nothing outside it and no more than `room` bytes; the problems.

    Only notebooks and zip files have their content written; of any other file only the name matters.
    """
    problems = []
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.infolist() if not member.is_dir()]
            if len(members) > MAX_MEMBERS:
                return [f"the zip file has {len(members):,} files, more than {MAX_MEMBERS:,}"]
            for member in members:
                try:
                    room -= _unpack_member(opened, member, target, room)
                except _MemberError as error:
                    problems.append(str(error))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        problems.append(f"the zip file cannot be read: {error}")
    return problems


class _MemberError(Exception):
    """One file of an archive cannot be taken."""


def _unpack_member(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, room: int) -> int:
    name = _inner_path(member)
    wanted = name.suffix == ".ipynb" or name.suffix.lower() == ".zip"
    path = target / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            size = _copy(opened, member, file, min(room, MAX_MEMBER)) if wanted else 0
        _set_time(path, member)
    except FileExistsError:
        raise _MemberError(f"{member.filename!r} stands in the zip file twice; the first counts") from None
    except Exception as error:  # each decompressor has errors of its own
        with contextlib.suppress(OSError):
            path.unlink()
        if isinstance(error, _MemberError):
            raise
        raise _MemberError(f"{member.filename[:80]!r} cannot be read from the zip file: {error}") from None
    return size


def _inner_path(member: zipfile.ZipInfo) -> PurePosixPath:
    name = PurePosixPath(member.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or not name.parts or PureWindowsPath(member.filename).drive:
        raise _MemberError(f"{member.filename[:80]!r} in the zip file is a path outside it")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        raise _MemberError(f"{member.filename[:80]!r} in the zip file is a link or device")
    return name


def _copy(opened: zipfile.ZipFile, member: zipfile.ZipInfo, file, limit: int) -> int:
    """Copy what the member really holds, whatever size it declares, and stop at the limit."""
    size = 0
    with opened.open(member) as content:
        while block := content.read(1 << 20):
            size += len(block)
            if size > limit:
                raise _MemberError(f"{member.filename[:80]!r} in the zip file unpacks to more than {limit >> 20} MiB")
            file.write(block)
    return size


def _set_time(path: Path, member: zipfile.ZipInfo) -> None:
    """The time in the archive: of several notebooks of a student the newest counts."""
    with contextlib.suppress(ValueError, OverflowError):  # a date that is none: it keeps the time of unpacking
        moment = time.mktime((*member.date_time, 0, 0, -1))
        os.utime(path, (moment, moment))
