"""A clean process with torch imported that forks workers: a worker then starts in milliseconds, not in seconds.

Runs as `python -I -c ...` from `start`; holds no checks, runs no tensor operation (a process that ran one on several
threads makes its forked children hang) and no student's code. Requests on its socket, each answered by one frame:

    ["spawn", memory, file, open_files, cpu_seconds, folder] and one descriptor -> ["pid", n]
    ["reap", n]: kill the worker's process group and wait             -> ["ended", status of `os.waitpid`]
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from . import protocol, sandbox
from .protocol import Frame
from .worker import SocketWorker, fresh_namespace

ROOT = Path(__file__).resolve().parent.parent
# The package's folder comes last on the path, so that nothing beside it can stand in for an installed module.
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from autograder import zygote; zygote.serve(int(sys.argv[2]))"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "LANG": "C.UTF-8", "MPLBACKEND": "Agg"}


class Zygote:
    """The grader's end: starts the zygote and asks it for workers. A context manager."""

    def __init__(self):
        self.sock, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-c", PROGRAM, str(ROOT), str(theirs.fileno())]
        environment = {**ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()

    def spawn(self, limits: sandbox.Limits, folder: str) -> tuple[int, socket.socket]:
        """A new worker: its process id and the grader's end of its socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.sock, [b"+"], [theirs.fileno()])
            request = ["spawn", limits.memory, limits.file, limits.open_files, limits.cpu_seconds, folder]
            return self.ask(request), ours

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


def serve(descriptor: int) -> None:
    """The zygote's loop, until the grader closes its end."""
    import torch

    torch.set_num_threads(1)
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
                pid = fork_worker(sock, descriptors[0], sandbox.Limits(*request[1:5]), request[5])
                os.close(descriptors[0])
                workers.add(pid)
                protocol.send(sock, Frame(["pid", pid]))
            else:
                workers.discard(request[1])
                status = reap(request[1])
                end_orphans(workers)
                protocol.send(sock, Frame(["ended", status]))
    for pid in workers:
        reap(pid)
    end_orphans(set())


def fork_worker(sock: socket.socket, descriptor: int, limits: sandbox.Limits, folder: str) -> int:
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
        sandbox.enter(limits, folder)
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
