"""Engines and controller live as long as the kernel that started them, however it ends.

Engines hold a lease besides: a file that is removed when they are to end, which also reaches those on other machines.
It is empty until all of them are up: from then on `engine.sh` keeps mpiexec from hearing of a rank that dies.
"""

import contextlib
import ctypes
import os
import platform
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

VARIABLE, LEASE = "HPCDL_KERNEL", "HPCDL_LEASE"


def environment() -> dict[str, str]:
    """What a child process needs to know about this one to hold on to it."""
    return {VARIABLE: f"{machine()} {os.getpid()} {psutil.Process().create_time()}"}


def machine() -> str:
    """What tells this machine from others: a pid means something only where this is the same.

    Two containers of one machine may have one name, and number their processes apart.
    """
    boot, namespace = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()}/{boot}/{namespace}"


def end_with_parent() -> None:
    """Let Linux end this process as soon as its parent ends, also while it hangs in a library's call."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended just now
        os.kill(os.getpid(), signal.SIGKILL)


def lease(directory: Path) -> Path:
    """A file in `directory`: the engines that hold it end when it is removed."""
    file, path = tempfile.mkstemp(prefix="lease-", dir=directory)
    os.close(file)
    return Path(path)


def confirm(lease: Path) -> None:
    """All engines that hold `lease` are up."""
    lease.write_text("all engines are up\n")


def holding(lease: Path) -> dict[str, str]:
    """What an engine needs in its environment to hold `lease`."""
    return {LEASE: str(lease)}


def hold(clean_up: Callable = lambda: None) -> None:
    """End this process, and what it started, within a second of the end of its kernel or of its lease.

    `clean_up()` is called before.
    """
    threading.Thread(target=_watch, args=(clean_up,), name="lifeline", daemon=True).start()


def shared_memory(pid: int | str = "self") -> list[str]:
    """The files in /dev/shm through which a process talks to the other ranks; MPI forgets them when it is killed."""
    with contextlib.suppress(OSError):
        return sorted(set(re.findall(r"(/dev/shm/mpich\S+)$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)))
    return []


def _watch(clean_up):
    host, pid, created = os.environ[VARIABLE].split()
    here = host == machine()
    lease = os.environ.get(LEASE)
    while (not here or _alive(int(pid), float(created))) and (lease is None or Path(lease).exists()):
        time.sleep(0.5)
    with contextlib.suppress(Exception):  # nobody is left who could be told
        clean_up()
    for file in shared_memory():
        with contextlib.suppress(OSError):
            os.unlink(file)
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _alive(pid, created):
    try:
        process = psutil.Process(pid)
        return process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
