"""Find the submissions, and their owners, in a course system's folder or zip file.

| layout | what it looks like |
|---|---|
| plain | `<student>/anything.ipynb`, `<student>.ipynb`, `<student>.zip` |
| nbgrader | `submitted/<student>/<assignment>/*.ipynb`, from the course folder or from `submitted` |
| Canvas | `lastfirst_[LATE_]USER_ATTACHMENT_name.ipynb` (`get_filename` in canvas-lms, `lib/content_zipper.rb`) |
| Moodle | `Full name_ID_assignsubmission_file[_]/...` or as a prefix (moodle, `mod/assign/classes/downloader.php`) |
| Blackboard | `Assignment_LOGIN_attempt_2026-11-20-23-59-00_name.ipynb`, next to a `.txt` file without a name |

A Canvas or Moodle student is identified by name and number, `lovelaceada_4711`, so that a sheet can match the number.

Folders may change while they are read: an unreadable file costs only its own row, with a sentence.
"""

import contextlib
import os
import stat
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from autograder.inside.notebook import HAND_IN, PACK
from autograder.walls import scratch

from .folders import files_below, in_order
from .owners import HANDOUT, is_archive, is_notebook, mark, own_name, owner
from .submission import Beside, Submission, joined
from .tops import of_students

MAX_MEMBERS = 20_000
MAX_CLASS = 2 << 30  # bytes of all notebooks and inner zip files of a whole class
MAX_STUDENT = 256 << 20  # bytes of one student's zip file
MAX_MEMBER = 65 << 20  # bytes of one member; a notebook above 64 MiB is refused when it is read
MAX_BESIDE = 1 << 20  # bytes of a file next to a notebook that may come along
DEEPEST = 2  # a class download that contains a student's zip file
OF_RESULTS = ("grades.csv", ".cache")  # in the folder that `--out` names
MOST_NAMED = 5  # files that a reason names


def submissions(folder: Path) -> list[Submission]:
    """Return the submissions in a folder or zip file of any layout above, in the order of names.

    Nothing in the folder raises; an OSError means that `folder` itself cannot be read.
    """
    return find(folder)[0]


def find(folder: Path) -> tuple[list[Submission], list[str]]:
    """Return the submissions, and the names of files that belong to no student."""
    if folder.is_file() and not is_archive(folder.name):
        return _of_student(owner(folder), [folder]), []
    opened = _opened(folder, MAX_CLASS)
    entries, beside = of_students(opened.name, opened.is_zip, in_order(os.listdir(opened.root), opened.root))
    strays = _strays(entries)
    students: dict[str, list[Path]] = {}
    for entry in entries:
        if entry not in strays:
            students.setdefault(owner(entry), []).append(entry)
    found = [submission for student, entries in students.items() for submission in _of_student(student, entries)]
    problem = joined(said for said in opened.problems if said not in _SPOILED.values())  # those have students' rows
    found += [Submission(folder.name, None, problem)] * bool(problem)
    return found, [entry.name for entry in (*beside, *strays)]


def _strays(entries: list[Path]) -> list[Path]:
    """Return what belongs to no student: a README, any file next to students' folders, and a folder of results."""
    results = [entry for entry in entries if all((entry / name).exists() for name in OF_RESULTS)]
    files = [entry for entry in entries if not os.path.isdir(entry) and not mark(entry.name)]
    handed_in = [entry for entry in files if is_notebook(entry.name) or is_archive(entry.name)]
    by_folder = len(files) < len(entries) and not handed_in
    return results + [e for e in files if e not in handed_in and (HANDOUT.match(e.name) or (by_folder and e.suffix))]


# -- one student


@dataclass
class _Seen:
    """The content of a student's files."""

    notebooks: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)

    def add(self, other: "_Seen") -> None:
        self.notebooks += other.notebooks
        self.problems += other.problems
        self.others += other.others


def _of_student(student: str, entries: list[Path]) -> list[Submission]:
    seen = _Seen()
    for entry in entries:
        seen.add(_look(entry))
    found = [_submission(student, path, seen.others, path in entries) for path in seen.notebooks]
    if any(each.path for each in found):
        return found
    reason = joined([*(each.problem for each in found), *seen.problems])
    return [Submission(student, None, reason, beside=tuple((own_name(o.name), o) for o in seen.others))]


def _submission(student: str, path: Path, others: list[Path], is_top: bool) -> Submission:
    if path in _SPOILED:
        return Submission(student, None, _SPOILED[path])
    # Next to a top-level file are other students' files: the student's own have the same mark.
    near = others if is_top else [other for other in others if other.is_relative_to(path.parent)]
    beside = [(own_name(o.name) if is_top else o.relative_to(path.parent).as_posix(), o) for o in near]
    beside.sort(key=lambda pair: (pair[0].count("/"), not pair[0].endswith(".py"), pair[0]))  # the first come along
    return Submission(student, path, beside=tuple(beside))


def neighbours(notebook: Path) -> Beside:
    """Return the files that come along with a notebook in a student's folder."""
    return _submission("", notebook, _look_below(notebook.parent, 1, "").others, False).beside


def _look(entry: Path, depth: int = 1) -> _Seen:
    """Find the notebooks in a file, folder or zip file, or say what is wrong if there are none."""
    is_link, is_folder = os.path.islink(entry), os.path.isdir(entry)
    if is_notebook(entry.name) and (is_link or not is_folder):
        return _Seen([entry])
    if is_archive(entry.name) and os.path.isfile(entry):
        return _look_into_archive(entry, depth)
    if is_folder and not is_link:
        return _look_below(entry, depth, "in the student's folder")
    link = ", but a link" if is_link else ""
    return _Seen(
        problems=[f"{entry.name!r} is not a notebook (.ipynb) and not a student's folder{link}; {HAND_IN}"],
        others=[entry] if not is_link and mark(entry.name) else [],
    )


def _look_into_archive(entry: Path, depth: int) -> _Seen:
    if entry in _SPOILED:
        return _Seen(problems=[_SPOILED[entry]])
    if depth > DEEPEST:
        return _Seen(problems=[f"{entry.name!r} is a zip file inside a zip file of a zip file; {HAND_IN}"])
    opened = _opened(entry, MAX_STUDENT)
    seen = _look_below(opened.root, depth + 1, "in the zip file")
    return _Seen(seen.notebooks, opened.problems or seen.problems, seen.others)


def _look_below(folder: Path, depth: int, place: str) -> _Seen:
    seen, unread = _Seen(), list[str]()
    for path in files_below(folder, unread):
        if is_notebook(path.name) or (is_archive(path.name) and os.path.isfile(path)):
            seen.add(_look(path, depth))
        else:
            seen.others.append(path)
    if not seen.notebooks and not seen.problems:
        seen.problems = unread or [f"there is no notebook (.ipynb) {place}{_named(seen.others)}; {HAND_IN}"]
    return seen


def _named(others: list[Path]) -> str:
    """Name the files found instead of a notebook."""
    names = ", ".join(repr(path.name) for path in others[:MOST_NAMED])
    return f"; it has {names}{', ...' if len(others) > MOST_NAMED else ''}" if names else ""


# -- zip files

_UNPACKED: list[scratch.Folder] = []  # removed when the program ends, after grading
_SPOILED: dict[Path, str] = {}  # files in these folders that could not be unpacked, and why


@dataclass
class _Opened:
    """A folder to read, and the files that its zip file could not provide."""

    root: Path
    name: str
    is_zip: bool = False
    problems: list[str] = field(default_factory=list)


def _opened(source: Path, room: int) -> _Opened:
    """Return the folder itself, or a new folder with the relevant files of a zip file."""
    if source.is_dir():
        return _Opened(source, source.name)
    _UNPACKED.append(scratch.Folder())
    target = Path(_UNPACKED[-1].name)
    return _Opened(target, source.stem, True, unpack(source, target, room))


def unpack(archive: Path, target: Path, room: int) -> list[str]:
    """Unpack a zip file under `target`, nothing outside it and at most `room` bytes; return the problems.

    Notebooks and zip files come first. A small file beside them comes along; of any other only the name matters.
    """
    problems = []
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.infolist() if not member.is_dir()]
            if len(members) > MAX_MEMBERS:
                return [f"the zip file has {len(members):,} files, more than {MAX_MEMBERS:,}; {PACK}"]
            for member in sorted(members, key=lambda member: not _counts(member.filename)):
                try:
                    room -= _unpack_member(opened, member, target, room)
                except _MemberError as error:
                    problems += [str(error)] if _counts(member.filename) or not error.is_small else []
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        problems.append(f"the zip file cannot be read: {getattr(error, 'strerror', None) or error}; pack it again")
    return problems


def _counts(name: str) -> bool:
    return is_notebook(name) or is_archive(name)


class _MemberError(Exception):
    """A file of an archive cannot be unpacked; `is_small` if it is only a possible companion file."""

    is_small = False


def _unpack_member(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, room: int) -> int:
    name = _inner_path(member)
    path, counts = target / name, _counts(name.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            if not counts and member.file_size > MAX_BESIDE:
                file.truncate(MAX_BESIDE + 1)  # its size marks it as missing
                return 0
            size = _copy(opened, member, file, room, MAX_MEMBER if counts else MAX_BESIDE)
        _set_time(path, member)
    except FileExistsError:
        raise _MemberError(f"{member.filename!r} stands in the zip file twice; the first counts") from None
    except Exception as error:  # each decompressor has its own errors
        raise _spoiled(path, member, error, counts) from None
    return size


def _spoiled(path: Path, member: zipfile.ZipInfo, error: Exception, counts: bool) -> _MemberError:
    """Say what is wrong with a member. Its file stays, empty, because its path shows the owner."""
    said = error if isinstance(error, _MemberError) else f"cannot be read from the zip file: {error}; pack it again"
    problem = _MemberError(f"{member.filename[:80]!r} {said}")
    with contextlib.suppress(OSError):
        os.truncate(path, 0 if counts else MAX_BESIDE + 1)
        problem.is_small = not counts
        if counts:
            _SPOILED[path] = str(problem)
    return problem


def _inner_path(member: zipfile.ZipInfo) -> PurePosixPath:
    name = PurePosixPath(member.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or not name.parts or PureWindowsPath(member.filename).drive:
        raise _MemberError(f"{member.filename[:80]!r} in the zip file is a path outside it; {PACK}")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        raise _MemberError(f"{member.filename[:80]!r} in the zip file is a link or device; pack the file itself")
    return name


def _copy(opened: zipfile.ZipFile, member: zipfile.ZipInfo, file, room: int, most: int) -> int:
    """Copy the member's real content, whatever size it declares, and stop at the limits."""
    if member.flag_bits & 1:
        raise _MemberError("in the zip file needs a password: pack it again without one")
    size = 0
    with opened.open(member) as content:
        while block := content.read(1 << 20):
            size += len(block)
            if size > most:
                raise _MemberError(f"in the zip file unpacks to more than {most >> 20} MiB; clear its outputs")
            if size > room:
                raise _MemberError(f"is too much: the files of the zip file together are larger than its limit; {PACK}")
            file.write(block)
    return size


def _set_time(path: Path, member: zipfile.ZipInfo) -> None:
    """Set the time from the archive: of a student's notebooks the newest counts."""
    with contextlib.suppress(ValueError, OverflowError):  # an invalid date: keep the time of unpacking
        moment = time.mktime((*member.date_time, 0, 0, -1))
        os.utime(path, (moment, moment))
