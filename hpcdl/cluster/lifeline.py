"""End engines and controller with the kernel that started them, however it ends.

Engines also hold a lease: a file that is removed to end them, even on other machines. It is empty until all of them are
up: from then on `engine.sh` hides a dying rank from mpiexec.
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
SHARED_MEMORY = re.compile(r"/dev/shm/(?:mpich|sm_segment|vader_segment)\S+$", re.MULTILINE)  # MPICH, Open MPI 5, 4


def environment() -> dict[str, str]:
    """Return the variables with which a child process ties itself to this one."""
    return {VARIABLE: f"{machine()} {os.getpid()} {psutil.Process().create_time()}"}


def machine() -> str:
    """Return an identity of this machine: a pid is meaningful only on the machine where it was issued.

    Two containers on one machine may share a name but number their processes separately.
    """
    boot, namespace = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()}/{boot}/{namespace}"


def end_with_parent(parent: int | None = None) -> None:
    """Let Linux end this process as soon as its parent ends, even while it hangs in a library call.

    A process that has just been forked names its `parent`, which may have ended before this call.
    """
    if sys.platform != "linux":
        return
    parent = parent or os.getppid()
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has just ended
        os.kill(os.getpid(), signal.SIGKILL)


def lease(directory: Path) -> Path:
    """Return the lease file in `directory`: engines that hold it end when it is removed."""
    file, path = tempfile.mkstemp(prefix="lease-", dir=directory)
    os.close(file)
    return Path(path)


def confirm(lease: Path) -> None:
    """Note in `lease` that all engines that hold it are up."""
    lease.write_text("all engines are up\n")


def holding(lease: Path) -> dict[str, str]:
    """Return the environment that makes an engine hold `lease`."""
    return {LEASE: str(lease)}


def hold(clean_up: Callable = lambda: None) -> None:
    """End this process and its children within a second after its kernel or its lease ends.

    `clean_up()` is called before.
    """
    threading.Thread(target=_watch, args=(clean_up,), name="lifeline", daemon=True).start()


def shared_memory(pid: int | str = "self") -> list[str]:
    """Return the files in /dev/shm that a process uses to reach other ranks; MPI leaves them behind when it is
    killed."""
    with contextlib.suppress(OSError):
        return sorted(set(SHARED_MEMORY.findall(Path(f"/proc/{pid}/maps").read_text())))
    return []


def kernel_lives() -> bool:
    """Return whether the kernel of this process still runs; a kernel on another machine counts as running."""
    host, pid, created = os.environ[VARIABLE].split()
    return host != machine() or _alive(int(pid), float(created))


def _watch(clean_up):
    lease = os.environ.get(LEASE)
    while kernel_lives() and (lease is None or Path(lease).exists()):
        time.sleep(0.5)
    with contextlib.suppress(Exception):  # there is no process left to tell
        clean_up()
    end()


def end() -> None:
    """Kill this process and its children, and remove the files by which they share memory."""
    kill([*(child.pid for child in psutil.Process().children(recursive=True)), os.getpid()])


def kill(processes: list[int]) -> None:
    """Kill processes, this one last, if at all, and remove the files by which they share memory."""
    for file in [file for process in processes for file in shared_memory(process)]:
        with contextlib.suppress(OSError):
            os.unlink(file)
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _alive(pid, created):
    try:
        process = psutil.Process(pid)
        return process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
