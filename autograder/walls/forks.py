"""The zygote's code: a clean process with torch imported, which forks workers when the grader requests them.

It holds no checks, runs no tensor operation (a process that ran one on several threads makes its forked children hang)
and no student's code. Requests on its socket, each answered in order:

    ["spawn", limits, folder, slot, key], the worker's socket -> its /proc schedstat and stat, opened, and ["pid", n]
      (slot: [], or [rank, size] and the descriptor of MPI's)
    ["reap", n]: kill the worker's process group and wait -> ["ended", status of `os.waitpid`]
    ["preload_lab", modules, closed]: import them, and find what each exercise forbids, for future workers; no answer
"""

import contextlib
import gc
import importlib
import linecache
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from autograder.boundary import protocol
from autograder.boundary.channel import BROKEN, BrokenSealError, Channel
from autograder.boundary.protocol import Frame
from autograder.inside import compiled, hiding, magics, mpi_rank, seal, sentry, shell, shims
from autograder.inside.forbidden import Guard
from autograder.inside.socket_worker import SocketWorker, fresh_namespace, private_harnesses, warm_up
from autograder.inside.worker import Worker

from . import namespaces, sandbox


def serve(descriptor: int, walls: str) -> None:
    """Run the zygote's loop until the grader closes its end."""
    import torch

    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # for the labs' kernels, before any code imports Triton
    guard = preload(walls)
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
                _, limits, folder, slot, key = request
                pid = fork_worker(sock, descriptors, sandbox.Limits(*limits), folder, walls, slot, key, guard)
                for descriptor in descriptors:
                    os.close(descriptor)
                workers.add(pid)
                send_clocks(sock, pid)
                protocol.send(sock, Frame(["pid", pid]))
            elif request[0] == "preload_lab":
                preload_lab(request[1], request[2], guard)
            else:
                workers.discard(request[1])
                status = reap(request[1])
                end_orphans(workers)
                protocol.send(sock, Frame(["ended", status]))
    for pid in workers:
        reap(pid)
    end_orphans(set())


def preload(walls: str) -> Guard:
    """Import what a worker uses later, when it can no longer read the grader's files. Return a guard with its doors
    set."""
    magics.transformer()
    worker = Worker(fresh_namespace())
    warm_up(worker)
    worker.forbid((), ())
    sandbox.prepare(walls)
    importlib.import_module("hpcdl.training.process_group")
    if sys.version_info >= (3, 12):  # then it adds an audit hook where it is imported, which a worker refuses
        importlib.import_module("filelock")
    shims.install(worker.guard)
    compiled.install()
    hiding.hide()
    freeze(worker.guard)
    return worker.guard


def preload_lab(modules: list[str], closed: list[list[str]], guard: Guard) -> None:
    """Import and find what each worker of a lab would otherwise import and find itself."""
    for name in modules:
        importlib.import_module(name)
    for patterns in closed:
        guard.prepare(tuple(patterns))
    freeze(guard)


# Prepared once for future workers: one that read all modules itself would copy their memory.
kept: dict[str, Any] = {}


def freeze(guard: Guard) -> None:
    """Make the machinery immutable for answers, and keep the garbage collector from copying imported modules'
    memory."""
    seal.harden()
    linecache.clearcache()  # of the text of libraries
    kept["sentry"] = seal.private(sentry.prepared)(guard.denies, seal.private(seal.take)())
    kept["harnesses"] = private_harnesses()
    gc.collect()
    gc.freeze()


def send_clocks(sock: socket.socket, pid: int) -> None:
    """Send the worker's opened schedstat and stat: the grader may see the process under another number, or not at
    all."""
    paths = [f"/proc/{pid}/{name}" for name in ("schedstat", "stat")]
    clocks = [os.open(path if os.path.exists(path) else os.devnull, os.O_RDONLY) for path in paths]
    socket.send_fds(sock, [b"+"], clocks)
    for clock in clocks:
        os.close(clock)


def fork_worker(
    sock: socket.socket,
    descriptors: list[int],
    limits: sandbox.Limits,
    folder: str,
    walls: str,
    slot: list,
    key: str,
    guard: Guard,
) -> int:
    """Fork a worker on the first descriptor; return its process id in the zygote, and never return in the worker."""
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
        if slot:
            rank, size = slot
            mpi_rank.join(descriptors[1], rank, size, keep=descriptors[0])
        sandbox.enter(limits, folder, walls)
        channel = Channel(socket.socket(fileno=descriptors[0]), bytes.fromhex(key), worker=True)
        worker = SocketWorker(channel, fresh_namespace(), guard, kept.pop("harnesses"))
        shell.install(worker.namespace)
        warm_up(worker)
        kept.pop("sentry")(worker.report)  # nothing keeps it: an answer could change its judges
        worker.run()
        status = 0
    except BrokenSealError:
        status = BROKEN
    finally:
        os._exit(status)


def reap(pid: int) -> int:
    """Kill a worker's process group and wait for the worker; a worker that has already ended keeps its status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def end_orphans(workers: set[int]) -> None:
    """Kill what student code left behind in other sessions: every child process that is not a worker."""
    while orphans := [pid for pid in children() if pid not in workers]:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def children() -> list[int]:
    """Return the process ids of this process's children (Linux; empty elsewhere)."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []
