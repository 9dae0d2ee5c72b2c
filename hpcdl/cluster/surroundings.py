"""What around the notebook keeps engines from starting: a full disk, a low limit, no loopback device."""

import contextlib
import os
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from hpcdl.cluster.diagnosis import ClusterError

FILES = 256  # open in one process
THREADS = 50  # of each process of a cluster, at most
MB = 1e6
MEMORY, FILE, DISK, SHARED = 2000 * MB, 8 * MB, MB, 8 * MB  # bytes
SHARED_MEMORY = Path("/dev/shm")


def explain(error: Exception, folder: Path, n: int) -> str:
    """Return why a controller and `n` engines cannot start in `folder`; empty if `error` says it all."""
    found = causes(folder, n)
    if isinstance(error, ClusterError):
        return "\n".join([*found, str(error)]) if found else ""
    return "\n".join(["the engines cannot start:", *(found or [f"{type(error).__name__}: {error}"])])


def causes(folder: Path, n: int) -> list[str]:
    """Return sentences that say what may keep a controller and `n` engines, which write in `folder`, from starting."""
    return [*_places(folder), *_limits(n), *_network()]


def _places(folder: Path) -> Iterator[str]:
    for place, least, advice in (
        (folder, DISK, "free some, or let the variable JUPYTER_RUNTIME_DIR name a folder on another disk"),
        (SHARED_MEMORY, SHARED, "end programs that use it, or start a container of Docker with --shm-size=1g"),
    ):
        with contextlib.suppress(OSError):
            if (free := shutil.disk_usage(place).free) < least:
                yield f"{place} has {free / MB:.2g} MB left, and engines need {least / MB:g} MB: {advice}"


def _limits(n: int) -> Iterator[str]:
    if (files := _limit(resource.RLIMIT_NOFILE)) < FILES:
        yield f"a process may open only {files} files here, and engines need {FILES}: run ulimit -n {FILES} first"
    if os.getuid() and (threads := _limit(resource.RLIMIT_NPROC)) < (least := _threads() + THREADS * (n + 1)):
        yield f"you may have only {threads} threads here, and need about {least}: run ulimit -u {least} first"
    for letter, kind, does, needed in (
        ("v", resource.RLIMIT_AS, "use only", MEMORY),
        ("d", resource.RLIMIT_DATA, "use only", MEMORY),
        ("f", resource.RLIMIT_FSIZE, "write files of only", FILE),
    ):
        if (most := _limit(kind)) < needed:
            yield (
                f"a process may {does} {most / MB:,.0f} MB here, and engines need {needed / MB:g} MB: "
                f"run ulimit -{letter} {needed / 1024:.0f} first"
            )


def _limit(kind: int) -> float:
    soft, _ = resource.getrlimit(kind)
    return float("inf") if soft == resource.RLIM_INFINITY else soft


def _threads() -> int:
    """Return how many threads this user has."""
    mine = (process.info for process in psutil.process_iter(["uids", "num_threads"]))
    return sum(info["num_threads"] or 0 for info in mine if info["uids"] and info["uids"].real == os.getuid())


def _network() -> Iterator[str]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as probe, socket.create_connection(probe.getsockname(), timeout=1):
            pass
    except OSError as error:
        yield f"nothing on this machine reaches 127.0.0.1 ({error}): switch the loopback device on, ip link set lo up"
