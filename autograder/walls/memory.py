"""How much memory the processes of answers may take together: never more than the machine has free.

Each lane gets an equal part of it. An answer has one process, and one for each further rank of a check.
"""

from dataclasses import dataclass, field
from pathlib import Path

import psutil

MOST = 2 << 30  # bytes of one process, beyond what torch takes
RANKS = 16  # processes of the largest check
USED = 0.8  # of the free memory
FIRST = 0.25  # at most this part of a lane's memory is for an answer's first process
FOLDER = 8  # a process may also write a file system of this part of its memory
CGROUPS = Path("/sys/fs/cgroup")
OF_GROUP = Path("/proc/self/cgroup")
# In the folder of a control group, by version: limit, use, and the line of `memory.stat` that counts cached files.
FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


@dataclass(frozen=True)
class Allowance:
    """Bytes that an answer's first process may take, and the process of each further rank, in one of some lanes."""

    first: int = MOST
    rank: int = MOST
    lanes: int = field(default=1, compare=False)

    @property
    def together(self) -> int:
        """Bytes of the largest check's processes, with their folders."""
        return (self.first + (RANKS - 1) * self.rank) * (FOLDER + 1) // FOLDER

    def __str__(self) -> str:
        """Say it with units; a process without ranks first."""
        return f"{_gib(self.first)} for an answer's process, {_gib(self.rank)} for each further rank of a check"


def allowance(lanes: int = 1, available: int | None = None) -> Allowance:
    """Return what the processes of one of `lanes` may take of the `available` bytes, by default the free memory."""
    whole = USED * (free() if available is None else available) / lanes * FOLDER / (FOLDER + 1)
    first = min(MOST, int(FIRST * whole))
    return Allowance(first, min(MOST, int(whole - first) // (RANKS - 1)), lanes)


def free() -> int:
    """Return the bytes that this process and its children can still take: of the machine's, and of its control
    groups'."""
    return min([psutil.virtual_memory().available, *_of_groups()])


def _of_groups() -> list[int]:
    found = []
    for line in OF_GROUP.read_text().splitlines() if OF_GROUP.exists() else ():
        _, kinds, name = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        version, root = (1, CGROUPS / "memory") if kinds else (2, CGROUPS)
        folder = root / name.lstrip("/")
        for each in (folder, *folder.parents):
            if each.is_relative_to(root):
                found += _of_group(each, *FILES[version])
    return found


def _of_group(folder: Path, limit: str, use: str, cached: str) -> list[int]:
    """Return the free bytes of one control group; nothing if it has no limit."""
    try:
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        most, used = int((folder / limit).read_text()), int((folder / use).read_text())
    except (OSError, ValueError):  # no limit: "max"
        return []
    return [max(0, most - used + int(stat.get(cached, 0)))]


def _gib(size: int) -> str:
    return f"{size / 2**30:.2g} GiB"
