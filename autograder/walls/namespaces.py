"""Namespaces: a zygote and its workers see no network, no other process and no other process's shared memory (Linux).

The zygote enters them once, before anything else is imported, so they cost a submission nothing. No privilege is needed
where the system lets a user make a user namespace; a default container does not. (`os.unshare` came with Python 3.12.)
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
ROOT = Path(__file__).resolve().parents[2]
PROBE = "import sys; sys.path.append(sys.argv[1]); from autograder.walls import namespaces; namespaces.enter()"


@cache
def available() -> bool:
    """Return whether our processes can enter them: tested in a process that then ends."""
    if sys.platform != "linux":
        return False
    command = [sys.executable, "-I", "-S", "-c", PROBE, str(ROOT)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0


def enter() -> None:
    """Continue as process 1 of new namespaces, with a private /proc and /dev/shm.

    The calling process waits for it and ends. Raises OSError (in the waiting process: exit code 1) if the system does
    not allow it.
    """
    uid, gid = os.geteuid(), os.getegid()
    unshare(NEWUSER | NEWNS | NEWIPC | NEWPID | NEWNET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    end_with_parent()
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    end_with_parent()
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if os.path.isdir("/dev/shm"):
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64m,mode=1777")


def private_folder(folder: str, size: int, files: int) -> None:
    """Mount an empty file system of `size` bytes and `files` files at `folder`, visible only to this process."""
    unshare(NEWNS)
    mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, f"size={size},nr_inodes={files},mode=700")


def become(uid: int) -> None:
    """Change from root to the user id `uid`, which owns nothing."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 1)  # otherwise /proc/self and uid_map belong to root


def go_first() -> None:
    """Make the system end this process or one of its children first if memory runs out."""
    with contextlib.suppress(OSError):  # another system
        Path("/proc/self/oom_score_adj").write_text("1000")


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that happens (Linux)."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """Set a property of this process in the kernel; raise OSError if it refuses."""
    _check(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    _check(ctypes.CDLL(None, use_errno=True).unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
