"""A clean process with torch imported that forks workers: a worker then starts in milliseconds, not in seconds.

Runs as `python -I -c ...` from `start`; holds no checks, runs no tensor operation (a process that ran one on several
threads makes its forked children hang) and no student's code. Requests on its socket, each answered by one frame:

    ["spawn", limits, folder] and the worker's socket     -> its /proc schedstat, opened, and ["pid", n]
    ["reap", n]: kill the worker's process group and wait -> ["ended", status of `os.waitpid`]
"""

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

from . import protocol, sandbox
from .protocol import Frame
from .worker import SocketWorker, fresh_namespace

ROOT = Path(__file__).resolve().parent.parent
# The package's folder comes last on the path, so that nothing beside it can stand in for an installed module.
PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from autograder import namespaces
if int(sys.argv[4]):
    namespaces.become(int(sys.argv[4]))
if sys.argv[3] == "namespaces":
    namespaces.enter()
from autograder import zygote
zygote.serve(int(sys.argv[2]), sys.argv[3])
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "LANG": "C.UTF-8", "MPLBACKEND": "Agg"}


class ZygoteError(RuntimeError):
    """The zygote ended: this system refuses what its tier needs, or there was no memory."""


class Zygote:
    """The grader's end: starts the zygote and asks it for workers. A context manager.

    `walls` is the tier of its workers, where it is not to be the strongest of this system.
    """

    def __init__(self, walls: str = ""):
        self.walls, self.uid = walls or sandbox.tier(), sandbox.spare_uid()
        self.sock, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-c", PROGRAM, str(ROOT), str(theirs.fileno()), self.walls, str(self.uid)]
        environment = {**ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()

    def spawn(self, limits: sandbox.Limits, folder: str) -> tuple[int, socket.socket, int]:
        """A new worker: its process id there, the grader's end of its socket, and a descriptor of its schedstat."""
        if self.uid:
            os.chown(folder, self.uid, -1)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self.sock, [b"+"], [theirs.fileno()])
            protocol.send(self.sock, Frame(["spawn", astuple(limits), folder]))
            _, descriptors, _, _ = socket.recv_fds(self.sock, 1, 1)
            return protocol.receive(self.sock).header[1], ours, descriptors[0]
        except (OSError, protocol.Closed) as error:
            ours.close()
            raise ZygoteError(f"no worker could be started (exit code {self.process.poll()})") from error

    def reap(self, pid: int) -> int:
        """End a worker and everything in its process group; returns its wait status."""
        self.sock.sendall(b"-")
        return self.ask(["reap", pid])

    def ask(self, request: list) -> int:
        protocol.send(self.sock, Frame(request))
        return protocol.receive(self.sock).header[1]

    def close(self) -> None:
        self.sock.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def serve(descriptor: int, walls: str) -> None:
    """The zygote's loop, until the grader closes its end."""
    import torch

    torch.set_num_threads(1)
    preload()
    sandbox.end_with_parent()
    sandbox.adopt_orphans()
    sock = socket.socket(fileno=descriptor)
    workers: set[int] = set()
    with contextlib.suppress(protocol.Closed):
        while True:
            mark, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
            if not mark:
                break
            request = protocol.receive(sock).header
            if request[0] == "spawn":
                pid = fork_worker(sock, descriptors[0], sandbox.Limits(*request[1]), request[2], walls)
                os.close(descriptors[0])
                workers.add(pid)
                send_clock(sock, pid)
                protocol.send(sock, Frame(["pid", pid]))
            else:
                workers.discard(request[1])
                status = reap(request[1])
                end_orphans(workers)
                protocol.send(sock, Frame(["ended", status]))
    for pid in workers:
        reap(pid)
    end_orphans(set())


def preload() -> None:
    """Import what a worker uses later: it cannot read the grader's files then."""
    for name in ("fingerprint", "notebook", "stages", "wire"):
        importlib.import_module(f"autograder.{name}")
    importlib.import_module("autograder.source").transformer()
    sandbox.readable()


def send_clock(sock: socket.socket, pid: int) -> None:
    """Send the worker's schedstat, opened: the grader may know the process by another number, or not see it at all."""
    path = f"/proc/{pid}/schedstat"
    clock = os.open(path if os.path.exists(path) else os.devnull, os.O_RDONLY)
    socket.send_fds(sock, [b"+"], [clock])
    os.close(clock)


def fork_worker(sock: socket.socket, descriptor: int, limits: sandbox.Limits, folder: str, walls: str) -> int:
    """Fork a worker on `descriptor`; returns its process id in the zygote and never returns in the worker."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # both sides set it, so that neither has to wait for the other
            os.setpgid(pid, pid)
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        sandbox.end_with_parent()
        sock.close()
        sandbox.enter(limits, folder, walls)
        SocketWorker(socket.socket(fileno=descriptor), fresh_namespace()).run()
        status = 0
    finally:
        os._exit(status)


def reap(pid: int) -> int:
    """Kill a worker's process group and wait for the worker; a worker that has ended keeps its own status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def end_orphans(workers: set[int]) -> None:
    """Kill what a student's code left behind in sessions of its own: every child of ours that is not a worker."""
    while orphans := [pid for pid in children() if pid not in workers]:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def children() -> list[int]:
    """The process ids of this process's children (Linux; elsewhere none are known)."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []
