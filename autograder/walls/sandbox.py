"""The limits and walls of a student's process, entered in the forked worker before student code runs.

| tier | files | network, processes | where |
|---|---|---|---|
| namespaces | Landlock, a private folder | seccomp, and separate namespaces | Linux that allows user namespaces |
| restricted | Landlock, a folder | seccomp | Linux in a default container, root or not |
| weak | everything that the grader may read | everything | elsewhere, or without pyseccomp |

Each tier limits memory, files and processor time; root changes to a spare uid if Python's own files are readable by
all.
"""

import ctypes
import os
import resource
import site
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import aliases, landlock, namespaces, syscalls

PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
WORDS = {
    "namespaces": "namespaces, Landlock, seccomp and limits: no files, no network, no other process",
    "restricted": "Landlock, seccomp and limits: no files, no network, no new process",
    "weak": "weak isolation: limits only, the code can read files and use the network",
}
PACKAGE = Path(__file__).resolve().parents[1]
CLONE = ("labs", "tests", "benchmarks", ".git")  # solutions, next to the package in a clone
INSTALLED = ("site-packages", "dist-packages")  # names of package folders
SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf")
KERNEL = ("/proc/self/schedstat", "/proc/cpuinfo", "/sys/devices/system/cpu")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SPARE_UIDS = range(61_000, 65_000)


@dataclass(frozen=True)
class Limits:
    """Bounds of one worker: bytes of memory beyond what torch takes, bytes per file, open files, processor seconds."""

    memory: int = 2 << 30
    file: int = 64 << 20
    open_files: int = 128
    cpu_seconds: int = 300
    files: int = 4096  # in its folder, if that is private


@cache
def tier() -> str:
    """Return the strongest tier that this system offers: namespaces, restricted or weak."""
    if sys.platform != "linux" or not landlock.version() or not syscalls.available():
        return "weak"
    return "namespaces" if namespaces.available() else "restricted"


def words() -> str:
    """Return the tier in words, for every report."""
    return f"{tier()} ({WORDS[tier()]})"


def spare_uid() -> int:
    """Return a user id that owns nothing, for root to become; 0 if it cannot: not root, or Python's files are private
    to root."""
    needed = [
        Path(path).resolve()
        for path in (sys.executable, os.path.dirname(os.__file__), sys.prefix, str(PACKAGE), *packages())
    ]
    closed = any(
        not folder.stat().st_mode & 0o001 for path in needed for folder in (path, *path.parents) if folder.exists()
    )
    return 0 if os.name != "posix" or os.geteuid() or closed else SPARE_UIDS[os.getpid() % len(SPARE_UIDS)]


@cache
def readable() -> list[str]:
    """Return what a worker may read, with links resolved: the system's and Python's libraries without the checks, and
    hpcdl."""
    places = dict.fromkeys(map(os.path.realpath, (*SYSTEM, sys.base_prefix, sys.prefix, *packages())))
    folders = [place for place in places if os.path.isdir(place)]
    hidden = secrets()
    hidden += aliases.hard_links(hidden, folders)
    found = [path for folder in folders for path in landlock.without(folder, hidden)]
    found += [place for place in places if os.path.isfile(place)]
    return [*dict.fromkeys(found), str(PACKAGE.parent / "hpcdl"), *KERNEL]


def packages() -> list[str]:
    """Return the folders of installed packages: Python's own, the user's, PYTHONPATH's and those in .pth files."""
    return list(dict.fromkeys([*site.getsitepackages(), *filter(is_installed, sys.path)]))


def is_installed(path: str) -> bool:
    """Return whether an installer filled a folder on the path: by its name, or because it holds pip's metadata."""
    folder = Path(path)
    if not path or not folder.is_dir() or folder.resolve() == PACKAGE.parent:
        return False
    return folder.name in INSTALLED or next(folder.glob("*.dist-info"), None) is not None


def secrets() -> list[str]:
    """Return what no worker may read, by every path: this package, its other copies, and a clone's other folders."""
    roots = dict.fromkeys([PACKAGE.parent, *(Path(folder).resolve() for folder in packages())])
    copies = [root / "autograder" for root in roots if (root / "autograder" / "exercises").is_dir()]
    beside = [PACKAGE.parent / name for name in CLONE if PACKAGE.parent.name not in INSTALLED]
    table = aliases.mounts()
    return [path for secret in (*copies, *beside) for path in aliases.shown(os.path.realpath(secret), table)]


def prepare(walls: str) -> None:
    """Compute once, before any fork, what `enter` needs for a tier."""
    readable()
    if walls != "weak":
        syscalls.common()


def enter(limits: Limits, folder: str, walls: str) -> None:
    """Apply the limits and the walls of a tier to this process, for good, and work in `folder`."""
    if walls == "namespaces":
        namespaces.private_folder(folder, limits.memory // 8, limits.files)
    _set(resource.RLIMIT_AS, address_space() + limits.memory)
    _set(resource.RLIMIT_FSIZE, limits.file)
    _set(resource.RLIMIT_NOFILE, limits.open_files)
    _set(resource.RLIMIT_CPU, limits.cpu_seconds)
    _set(resource.RLIMIT_CORE, 0)
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    if sys.platform == "linux":
        drop_capabilities()
        namespaces.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if walls != "weak":
        if len(os.listdir("/proc/self/task")) > 1:
            raise OSError("there is a second thread: Landlock and seccomp hold for the one that enters them")
        landlock.restrict(readable(), (folder, *DEVICES))
        syscalls.restrict()


def drop_capabilities() -> None:
    """Drop the extra capabilities of root or of a namespace's first user (`capset`, version 3)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that none can escape (Linux)."""
    if sys.platform == "linux":
        namespaces.prctl(PR_SET_CHILD_SUBREAPER, 1)


def address_space() -> int:
    """Return the bytes of address space that this process has mapped; torch alone maps gigabytes."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 8 << 30


def _set(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
