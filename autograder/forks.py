"""Inside the zygote: a clean process with torch imported, which forks workers when the grader asks for them.

It holds no checks, runs no tensor operation (a process that ran one on several threads makes its forked children hang)
and no student's code. Requests on its socket, each answered in order:

    ["spawn", limits, folder, place], the worker's socket -> its /proc schedstat, opened, and ["pid", n]
      (place: [], or [rank, size] and the descriptor of MPI's)
    ["reap", n]: kill the worker's process group and wait -> ["ended", status of `os.waitpid`]
"""

import builtins
import contextlib
import gc
import importlib
import os
import signal
import socket
from pathlib import Path

from . import mpi_rank, namespaces, protocol, sandbox
from .peer import mark_of
from .protocol import Frame, ProtocolError, UnsendableError
from .worker import Worker, text_of


def serve(descriptor: int, walls: str) -> None:
    """The zygote's loop, until the grader closes its end."""
    import torch

    torch.set_num_threads(1)
    preload()
    namespaces.end_with_parent()
    sandbox.adopt_orphans()
    sock = socket.socket(fileno=descriptor)
    workers: set[int] = set()
    with contextlib.suppress(protocol.Closed, ConnectionError):  # the grader has closed its end, or was killed
        while True:
            mark, descriptors, _, _ = socket.recv_fds(sock, 1, 2)
            if not mark:
                break
            request = protocol.receive(sock).header
            if request[0] == "spawn":
                _, limits, folder, place = request
                pid = fork_worker(sock, descriptors, sandbox.Limits(*limits), folder, walls, place)
                for descriptor in descriptors:
                    os.close(descriptor)
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
    warm_up(Worker(fresh_namespace()))
    sandbox.readable()
    gc.collect()
    gc.freeze()  # else a collection in a worker would copy the memory of all that was imported: a sixth of a second


def send_clock(sock: socket.socket, pid: int) -> None:
    """Send the worker's schedstat, opened: the grader may know the process by another number, or not see it at all."""
    path = f"/proc/{pid}/schedstat"
    clock = os.open(path if os.path.exists(path) else os.devnull, os.O_RDONLY)
    socket.send_fds(sock, [b"+"], [clock])
    os.close(clock)


def fork_worker(sock, descriptors: list[int], limits: sandbox.Limits, folder: str, walls: str, place: list) -> int:
    """Fork a worker on the first descriptor; returns its process id in the zygote and never returns in the worker."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # both sides set it, so that neither has to wait for the other
            os.setpgid(pid, pid)
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        namespaces.end_with_parent()
        sock.close()
        if place:
            mpi_rank.join(descriptors[1], *place, keep=descriptors[0])
        sandbox.enter(limits, folder, walls)
        worker = SocketWorker(socket.socket(fileno=descriptors[0]), fresh_namespace())
        warm_up(worker)
        worker.run()
        status = 0
    finally:
        os._exit(status)


def warm_up(worker: Worker) -> None:
    """Read a notebook of one cell. The first time, in the zygote, sets up what parses; the first time in a worker
    takes the memory for it, and now nobody waits for that."""
    cells, *_ = worker.read(b'{"cells": [{"cell_type": "code", "source": "def f(x): return x"}]}')
    worker.needed(cells, [["f"]])


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


class SocketWorker(Worker):
    """A worker at the end of a socket."""

    def __init__(self, sock: socket.socket, namespace: dict):
        super().__init__(namespace)
        self.sock, self.incoming = sock, protocol.Incoming(sock)

    def ask(self, frame: Frame) -> Frame:
        protocol.send(self.sock, frame)
        while True:
            reply = self.incoming.receive()
            if reply.header[:1] == ["call"]:
                protocol.send_bytes(self.sock, self.reply(reply))
            elif mark_of(reply) == mark_of(frame):
                return reply

    def reply(self, frame: Frame) -> bytes:
        """The reply to a call, in a form that can be sent whatever the result is."""
        reply = self.serve(frame)
        try:
            return protocol.pack(reply)
        except (UnsendableError, ValueError, TypeError, RecursionError) as error:
            problem = {"kind": "unsendable", "type": type(error).__name__, "text": text_of(error)}
            return protocol.pack(Frame(["error", problem, mark_of(frame)]))

    def run(self) -> None:
        """Serve until the grader closes the connection or breaks the protocol."""
        with contextlib.suppress(protocol.Closed, ProtocolError):
            while True:
                protocol.send_bytes(self.sock, self.reply(self.incoming.receive()))


def fresh_namespace() -> dict:
    """A namespace for a student's cells, as a notebook has it."""
    return {"__name__": "__main__", "__builtins__": builtins}
