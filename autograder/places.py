"""Places among the ranks of a real MPI, for workers: mpiexec starts a relay on each, which hands its connection over.

So a rank is a worker like any other, forked from the zygote with torch imported (see `mpi_rank` for its side). Two
ranks that mpiexec starts as `python` take 2.6 s, most of it to import torch; as workers they take 0.3 s.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from hpcdl.cluster.launcher import LauncherError, find_launcher

# A relay lives as long as the connection to the grader does, so nothing is left when the grader is killed.
RELAY = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as grader:
    grader.connect(sys.argv[1])
    socket.send_fds(grader, [os.environ["PMI_RANK"].encode()], [int(os.environ["PMI_FD"])])
    grader.recv(1)
"""
HERE = ("-launcher", "fork", "-hosts", "localhost")  # also in a job of Slurm, whose nodes mpiexec would take
PATIENCE = 20.0  # seconds for mpiexec to start its relays, and to end


@dataclass(frozen=True)
class Place:
    """Rank `rank` of `size`, and the descriptor on which it speaks with its mpiexec."""

    descriptor: int
    rank: int
    size: int


class Places:
    """`size` places of one mpiexec, by rank, for as long as the block lasts. LauncherError where there are none."""

    def __init__(self, size: int):
        self.size = size

    def __enter__(self) -> list[Place]:
        self.stack = contextlib.ExitStack()
        try:
            return self.start(launcher())
        except BaseException:
            self.stack.close()
            raise

    def start(self, command: list[str]) -> list[Place]:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="grade-"))
        server = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(os.path.join(folder, "ranks"))
        server.listen()
        server.settimeout(PATIENCE)
        relay = [sys.executable, "-I", "-S", "-c", RELAY, server.getsockname()]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, "-n", str(self.size), *relay], start_new_session=True, **quiet)
        self.stack.callback(_end, process)
        try:
            return sorted((self.accept(server) for _ in range(self.size)), key=lambda place: place.rank)
        except (OSError, ValueError, IndexError):
            raise LauncherError(f"{command[0]} did not start {self.size} processes") from None

    def accept(self, server: socket.socket) -> Place:
        relay = self.stack.enter_context(server.accept()[0])
        relay.settimeout(PATIENCE)
        rank, descriptors, _, _ = socket.recv_fds(relay, 16, 1)
        self.stack.callback(os.close, descriptors[0])
        return Place(descriptors[0], int(rank), self.size)

    def __exit__(self, *_):
        self.stack.close()


def launcher() -> list[str]:
    """The command of an mpiexec whose ranks a worker can take over: MPICH's, on Linux."""
    if sys.platform != "linux":
        raise LauncherError("it takes Linux")
    found = find_launcher()
    if not found.mpi.startswith("MPICH"):
        raise LauncherError(f"it takes MPICH's mpiexec, not {found}")
    return [str(found.path), *found.options, *HERE]


def _end(process: subprocess.Popen) -> None:
    """Wait for an mpiexec whose relays have been let go."""
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
