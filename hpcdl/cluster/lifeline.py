"""Engines and controller live as long as the kernel that started them, however it ends."""

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

VARIABLE = "HPCDL_KERNEL"


def environment() -> dict[str, str]:
    """What a child process needs to know about this one to hold on to it."""
    return {VARIABLE: f"{socket.gethostname()} {os.getpid()} {psutil.Process().create_time()}"}


def hold(clean_up: Callable = lambda: None) -> None:
    """End this process, and what it started, within a second of the end of the kernel named in the environment.

    `clean_up()` is called before.
    """
    host, pid, created = os.environ[VARIABLE].split()
    if host == socket.gethostname():  # elsewhere ipyparallel's heartbeat does it
        threading.Thread(target=_watch, args=(int(pid), float(created), clean_up), name="lifeline", daemon=True).start()


def shared_memory() -> list[str]:
    """The files in /dev/shm through which this process talks to the other ranks; MPI forgets them when it is killed."""
    with contextlib.suppress(OSError):
        return sorted(set(re.findall(r"(/dev/shm/mpich\S+)$", Path("/proc/self/maps").read_text(), re.MULTILINE)))
    return []


def _watch(pid, created, clean_up):
    while _alive(pid, created):
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
