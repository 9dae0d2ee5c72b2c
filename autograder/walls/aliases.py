"""Other names of secret files: a bind mount shows a folder in a second place, a hard link is a second name of a file.

(A symbolic link does not matter: Landlock checks its target.)
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
OCTAL = re.compile(r"\\([0-7]{3})")  # mountinfo's escape for a space in a path


@dataclass(frozen=True)
class Mount:
    """One mount: its file system, the folder of it that is shown, and the mount point."""

    device: str
    root: str
    point: str


def mounts() -> list[Mount]:
    """Return this process's mounts, in order of creation; [] if the system does not say."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    fields = [[OCTAL.sub(lambda octal: chr(int(octal[1], 8)), part) for part in line.split()[2:5]] for line in lines]
    return [Mount(*three) for three in fields]


def shown(path: str, table: list[Mount]) -> list[str]:
    """Return `path`, and every other place where a mount shows it or a part of it."""
    above = [mount for mount in table if _within(path, mount.point)]
    if not above:
        return [path]
    home = max(above, key=lambda mount: (len(mount.point), table.index(mount)))
    inner = _moved(path, home.point, home.root)  # its path inside the file system
    found = [path]
    for mount in table:
        if mount.device == home.device and _within(inner, mount.root):
            found.append(_moved(inner, mount.root, mount.point))
        elif mount.device == home.device and _within(mount.root, inner):
            found.append(mount.point)
    return list(dict.fromkeys(found))


def hard_links(secrets: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Return names in `folders` of files that are also in `secrets`. Some installers link files from a cache."""
    status = (os.lstat(entry.path) for secret in secrets for entry in _files(secret))
    wanted = {(found.st_dev, found.st_ino) for found in status if found.st_nlink > 1}
    numbers = {number for _, number in wanted}
    entries = (entry for folder in folders for entry in _files(folder)) if wanted else ()
    return [entry.path for entry in entries if entry.inode() in numbers and _identity(entry) in wanted]


def _identity(entry: os.DirEntry) -> tuple[int, int]:
    found = os.lstat(entry.path)
    return found.st_dev, found.st_ino


def _files(folder: str) -> Iterator[os.DirEntry]:
    """Yield all files below a folder, without links and unreadable entries."""
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
