"""Slots for workers among the ranks of a real MPI: mpiexec starts a relay on each, which passes its connection on.

So a rank is a worker like any other, forked from the zygote with torch imported (see `mpi_rank` for its side). Two
ranks that mpiexec starts as `python` take 2.6 s, mostly to import torch; as workers they take 0.3 s.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from autograder.walls import scratch
from autograder.walls.zygote import Slot
from hpcdl.cluster.launcher import LauncherError, find_launcher

# A relay ends with its connection to the grader, so nothing is left if the grader is killed.
RELAY = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as grader:
    grader.connect(sys.argv[1])
    socket.send_fds(grader, [os.environ["PMI_RANK"].encode()], [int(os.environ["PMI_FD"])])
    grader.recv(1)
"""
HERE = ("-launcher", "fork", "-hosts", "localhost")  # also in a Slurm job, where mpiexec would use the job's nodes
PATIENCE = 20.0  # seconds for mpiexec to start its relays, and to end


@contextlib.contextmanager
def slots(size: int) -> Iterator[list[Slot]]:
    """Provide `size` slots of one mpiexec, by rank, inside the block; raise LauncherError if there are none."""
    command = launcher()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(os.path.join(stack.enter_context(scratch.Folder()), "ranks"))
        server.listen()
        server.settimeout(PATIENCE)
        stack.callback(_end, _start([*command, "-n", str(size)], server.getsockname()))
        try:
            found = [_accept(server, stack) for _ in range(size)]
        except (OSError, IndexError):
            raise LauncherError(f"{command[0]} did not start {size} processes") from None
        yield [Slot(descriptor, rank, size) for rank, descriptor in sorted(found)]


def launcher() -> list[str]:
    """Return the command of an mpiexec with ranks that workers can take over: MPICH's, on Linux."""
    if sys.platform != "linux":
        raise LauncherError("it takes Linux")
    found = find_launcher()
    if not found.mpi.startswith("MPICH"):
        raise LauncherError(f"it takes MPICH's mpiexec, not {found}")
    return [str(found.path), *found.options, *HERE]


def _start(command: list[str], address: str) -> subprocess.Popen:
    relay = [sys.executable, "-I", "-S", "-c", RELAY, address]
    nothing = subprocess.DEVNULL
    return subprocess.Popen([*command, *relay], start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)


def _accept(server: socket.socket, stack: contextlib.ExitStack) -> tuple[int, int]:
    """Return the rank of the next relay, and its connection to mpiexec; `stack` closes both connections."""
    relay = stack.enter_context(server.accept()[0])
    relay.settimeout(PATIENCE)
    rank, descriptors, _, _ = socket.recv_fds(relay, 16, 1)
    stack.callback(os.close, descriptors[0])
    return int(rank), descriptors[0]


def _end(process: subprocess.Popen) -> None:
    """Wait for an mpiexec after its relays have been released."""
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
