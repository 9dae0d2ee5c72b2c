"""What a student's process may use. Called in the forked worker before any line of the student's runs.

The limits below bound memory, files and processes on any Unix. They do not hide files or the network: `tier()` says
so in every report.
"""

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38


@dataclass(frozen=True)
class Limits:
    """Bounds of one worker: bytes of memory beyond what torch takes, bytes per file, open files, processor seconds."""

    memory: int = 2 << 30
    file: int = 64 << 20
    open_files: int = 128
    cpu_seconds: int = 300


def tier() -> str:
    """What the isolation is, in words, for every report."""
    return "process limits only (no file or network isolation yet)"


def enter(limits: Limits, folder: str) -> None:
    """Apply the limits to this process, for good, and work in `folder` with nothing on the standard streams."""
    _set(resource.RLIMIT_AS, address_space() + limits.memory)
    _set(resource.RLIMIT_FSIZE, limits.file)
    _set(resource.RLIMIT_NOFILE, limits.open_files)
    _set(resource.RLIMIT_CPU, limits.cpu_seconds)
    _set(resource.RLIMIT_CORE, 0)
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that happens (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none of them can slip away (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def address_space() -> int:
    """Bytes of address space that this process has mapped already; torch alone maps gigabytes."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 8 << 30


def _set(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
