"""The grader's end of the zygote, a process with torch imported that forks workers in milliseconds (see `forks`).

It runs as `python -I -c ...`, so it contains nothing from the grader's memory.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from autograder.boundary import protocol
from autograder.boundary.channel import KEY
from autograder.boundary.protocol import Frame

from . import memory, sandbox, scratch

SPARES = 2  # workers forked ahead: ending one and forking the next takes longer than grading a small notebook
ROOT = Path(__file__).resolve().parents[2]
# The package's folder comes last on the path, so that nothing next to it can replace an installed module.
PROGRAM = """
import sys
sys.path += [path for path in sys.argv[5:] if path not in sys.path]
sys.path.append(sys.argv[1])
from autograder.walls import namespaces
namespaces.go_first()
if int(sys.argv[4]):
    namespaces.become(int(sys.argv[4]))
if sys.argv[3] == "namespaces":
    namespaces.enter()
from autograder.walls import forks
forks.serve(int(sys.argv[2]), sys.argv[3])
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "LANG": "C.UTF-8", "MPLBACKEND": "Agg"}
# torch.compile would start a compiler, in a process of its own: it returns its function instead.
ENVIRONMENT["TORCHDYNAMO_DISABLE"] = "1"
# Grades are the same with and without a GPU; CUDA also opens a socket, and does not survive a fork.
ENVIRONMENT["CUDA_VISIBLE_DEVICES"] = ENVIRONMENT["HIP_VISIBLE_DEVICES"] = ""


class ZygoteError(RuntimeError):
    """The zygote ended: this system refuses what its tier needs, or memory ran out."""


@dataclass(frozen=True)
class Slot:
    """A slot for a worker as a rank of a real MPI: `rank` of `size`, and its connection to mpiexec."""

    descriptor: int
    rank: int
    size: int


@dataclass
class Spawned:
    """A worker: its limits, the grader's end of its socket and its key; later its process, its schedstat and stat."""

    limits: sandbox.Limits
    sock: socket.socket
    key: bytes
    pid: int = 0
    clock: int = -1
    stat: int = -1


class Zygote:
    """The grader's end: starts the zygote and requests workers. A context manager.

    `walls` is the tier of its workers, by default the strongest of this system. A worker with a private file system is
    forked in advance, and ends while the grader continues: both take as long as grading a small notebook.
    """

    def __init__(self, walls: str = "", allowed: memory.Allowance | None = None):
        self.walls, self.uid = walls or sandbox.tier(), sandbox.spare_uid()
        self.memory = allowed or memory.allowance()
        self.sock, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-c", PROGRAM, str(ROOT), str(theirs.fileno()), self.walls, str(self.uid)]
        command += sandbox.packages()  # -I removes the user's and PYTHONPATH's
        environment = {**ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self.owed: deque[Spawned | None] = deque()  # expected replies: for a worker, or None for one that ends
        self.spares: deque[Spawned] = deque()
        self.folder = scratch.Folder()  # under the file systems of the workers
        self.preloaded: set[str | tuple[str, ...]] = set()  # modules and forbidden patterns that it knows

    def limits(self, rank: bool = False) -> sandbox.Limits:
        """Return the limits of an answer's first process, or of a further rank."""
        return sandbox.Limits(memory=self.memory.rank if rank else self.memory.first)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let processes that start in the block take the memory of all lanes."""
        before, self.memory = self.memory, memory.allowance()
        try:
            yield
        finally:
            self.memory = before

    def spawn(self, limits: sandbox.Limits, folder: str, slot: Slot | None = None) -> Spawned:
        """Return a new worker, with its process id there.

        With a `slot` it is a rank of MPI, and answers when all ranks exist.
        """
        worker = None
        try:
            if self.walls != "namespaces":  # a folder for each worker: none finds another's files or locks
                own = tempfile.mkdtemp(dir=folder)
                if self.uid:  # it may then pass through, and the walls show it only its own
                    os.chown(folder, self.uid, -1)
                worker = self.request(limits, own, slot)
            elif slot:
                worker = self.request(limits, self.folder.name, slot)
            else:
                worker = self.pop_spare(limits) or self.request(limits, self.folder.name)
                while sum(spare.limits == limits for spare in self.spares) < SPARES:
                    self.spares.append(self.request(limits, self.folder.name))
            while not worker.pid:
                self.collect()
        except (OSError, protocol.Closed) as error:
            self.give_up(worker)
            raise ZygoteError(f"no worker could be started (exit code {self.process.poll()})") from error
        return worker

    def pop_spare(self, limits: sandbox.Limits) -> Spawned | None:
        while len(self.spares) > 2 * SPARES:  # for an answer's first process, and for its ranks
            self.discard(self.spares.popleft())
        fitting = next((spare for spare in self.spares if spare.limits == limits), None)
        if fitting:
            self.spares.remove(fitting)
        return fitting

    def request(self, limits: sandbox.Limits, folder: str, slot: Slot | None = None) -> Spawned:
        """Request a worker without waiting for it."""
        if self.uid:
            os.chown(folder, self.uid, -1)
        ours, theirs = socket.socketpair()
        worker = Spawned(limits, ours, os.urandom(KEY))
        self.owed.append(worker)
        with theirs:
            socket.send_fds(self.sock, [b"+"], [theirs.fileno(), *([slot.descriptor] if slot else [])])
        place = [slot.rank, slot.size] if slot else []
        protocol.send(self.sock, Frame(["spawn", astuple(limits), folder, place, worker.key.hex()]))
        return worker

    def collect(self) -> int:
        """Wait for the next expected reply; return the wait status if it is for an ended worker."""
        worker = self.owed.popleft()
        if worker is None:
            return protocol.receive(self.sock).header[1]
        _, descriptors, _, _ = socket.recv_fds(self.sock, 1, 2)
        if not descriptors:
            raise protocol.Closed
        worker.pid, (worker.clock, worker.stat) = protocol.receive(self.sock).header[1], descriptors
        return 0

    def reap(self, pid: int) -> int:
        """End a worker and everything in its process group; returns its wait status."""
        self.end(pid)
        status = 0
        while self.owed:
            status = self.collect()
        return status

    def dismiss(self, pid: int) -> None:
        """End a worker, and wait only if it writes in a folder that the caller will remove."""
        if self.walls == "namespaces":
            self.end(pid)
        else:
            self.reap(pid)

    def end(self, pid: int) -> None:
        """Request a worker's end without waiting for it."""
        self.sock.sendall(b"-")
        protocol.send(self.sock, Frame(["reap", pid]))
        self.owed.append(None)

    def preload_lab(self, modules: tuple[str, ...], closed: tuple[tuple[str, ...], ...] = ()) -> None:
        """Import these modules for future workers, which saves each of them seconds, and prepare them for what each
        exercise forbids."""
        new = [[part for part in parts if part not in self.preloaded] for parts in (modules, closed)]
        if any(new):
            self.preloaded.update(*new)
            while self.spares:
                self.discard(self.spares.popleft())
            self.sock.sendall(b"-")
            protocol.send(self.sock, Frame(["preload_lab", *new]))

    def give_up(self, worker: Spawned | None) -> None:
        """Drop the expected replies after the zygote has ended."""
        for lost in (worker, *self.spares, *self.owed):
            if lost:
                lost.sock.close()
        self.spares.clear()
        self.owed.clear()

    def discard(self, worker: Spawned) -> None:
        while not worker.pid:
            self.collect()
        worker.sock.close()
        os.close(worker.clock)
        os.close(worker.stat)
        self.dismiss(worker.pid)

    def close(self) -> None:
        with contextlib.suppress(OSError, protocol.Closed):  # it may already have ended
            while self.spares:
                self.discard(self.spares.popleft())
            while self.owed:
                self.collect()
        self.sock.close()
        self.process.wait()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
