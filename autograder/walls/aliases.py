"""Other names of what is secret: bind mounts show a folder in a second place, a hard link is a second name of a file.

(A symbolic link is no such name: Landlock asks for the place where it leads.)
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
OCTAL = re.compile(r"\\([0-7]{3})")  # how mountinfo writes a blank in a path


@dataclass(frozen=True)
class Mount:
    """One mount: its file system, which folder of that it shows, and where."""

    device: str
    root: str
    point: str


def mounts() -> list[Mount]:
    """The mounts of this process, in the order in which they were made; [] where the system does not say."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    fields = [[OCTAL.sub(lambda octal: chr(int(octal[1], 8)), part) for part in line.split()[2:5]] for line in lines]
    return [Mount(*three) for three in fields]


def shown(path: str, table: list[Mount]) -> list[str]:
    """`path`, and every other place in which a mount shows it, or a part of it."""
    above = [mount for mount in table if _within(path, mount.point)]
    if not above:
        return [path]
    home = max(above, key=lambda mount: (len(mount.point), table.index(mount)))
    inner = _moved(path, home.point, home.root)  # its path in the file system itself
    found = [path]
    for mount in table:
        if mount.device == home.device and _within(inner, mount.root):
            found.append(_moved(inner, mount.root, mount.point))
        elif mount.device == home.device and _within(mount.root, inner):
            found.append(mount.point)
    return list(dict.fromkeys(found))


def hard_links(secrets: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The names in `folders` of files that are in `secrets` too. Some installers link files from a cache."""
    status = (os.lstat(entry.path) for secret in secrets for entry in _files(secret))
    wanted = {(found.st_dev, found.st_ino) for found in status if found.st_nlink > 1}
    numbers = {number for _, number in wanted}
    entries = (entry for folder in folders for entry in _files(folder)) if wanted else ()
    return [entry.path for entry in entries if entry.inode() in numbers and _identity(entry) in wanted]


def _identity(entry: os.DirEntry) -> tuple[int, int]:
    found = os.lstat(entry.path)
    return found.st_dev, found.st_ino


def _files(folder: str) -> Iterator[os.DirEntry]:
    """All files below a folder, links and what cannot be read left out."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _moved(path: str, folder: str, to: str) -> str:
    return os.path.normpath(os.path.join(to, os.path.relpath(path, folder)))
