"""A loader's workers: started, given tasks, waited for, and named when they die.

All read tasks from one pipe, so a free worker takes the next; each answers in its own pipe, which closes when the
worker dies.
"""

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time

import cloudpickle
import numpy as np

from hpcdl.data.loader.slots import DROPPED, NOTES, SHARD, WORKER, Slots
from hpcdl.data.loader.worker import REPLY, TASK, LoadJob, serve

KINDS = ("thread", "process")
GRACE = 2.0  # seconds for a worker to end after being told to


class WorkerError(RuntimeError):
    """A worker died, is stuck, or could not make a batch: which one, in which shard, and what to do."""


class Crew:
    """`jobs`, each with its own worker, a "thread" or a "process" by `kind`; workers fill `slots`."""

    def __init__(self, jobs: list[LoadJob], slots: Slots, kind: str):
        self.jobs, self.slots = jobs, slots
        self.owner = os.getpid()  # a forked process has the same pipes and slots
        self.busy: dict[int, tuple[int, int]] = {}  # by number of batch: slot and samples, until it is done
        self.done: dict[int, float] = {}  # by number of batch: seconds that it took
        self.processes: dict[int, subprocess.Popen] = {}
        self.threads: list[threading.Thread] = []
        task_end, self.tasks = os.pipe()
        self.ours = [task_end]  # the workers' ends of pipes, as far as this process has them open
        self.replies: dict[int, int] = {}  # by descriptor: whose it is
        self.poll = select.poll()
        try:
            for job in jobs:
                (self._start_process if kind == "process" else self._start_thread)(job, task_end)
            if kind == "process":
                os.close(self.ours.pop())
        except BaseException:
            self.close()
            raise

    @property
    def is_mine(self) -> bool:
        """Return whether this process made the workers, and was not forked since."""
        return os.getpid() == self.owner

    def start(self, number: int, slot: int, indices: np.ndarray) -> None:
        """Let a worker fill `slot` with samples `indices`: batch `number`."""
        notes = self.slots.layout.notes(self.slots.memory, slot)
        notes[WORKER], notes[SHARD], notes[DROPPED] = -1, -1, False
        notes[NOTES : NOTES + len(indices)] = indices
        self.busy[number] = slot, len(indices)
        with contextlib.suppress(BrokenPipeError):  # no worker is left: `wait` says why
            os.write(self.tasks, TASK.pack(number, slot, len(indices)))

    def wait(self, number: int, patience: float) -> float:
        """Wait for batch `number`, and return the seconds that it took.

        Raises WorkerError if a worker has died or cannot make a batch, or if none is made in `patience` seconds.
        """
        while number in self.busy:
            ready = self.poll.poll(1e3 * patience)
            if not ready:
                raise WorkerError(self._stuck(number, patience))
            for descriptor, _ in ready:
                self._hear(descriptor)
        return self.done.pop(number)

    def drop(self) -> None:
        """Cancel unfinished work: workers answer without work."""
        for slot, _ in self.busy.values():
            self._notes(slot)[DROPPED] = True

    def close(self) -> None:
        """End the workers, and wait for it; in a forked process do nothing: they work for another one."""
        if self.tasks < 0 or not self.is_mine:
            return
        self.drop()
        os.close(self.tasks)
        self.tasks = -1
        for process in self.processes.values():
            _end(process)
        for thread in self.threads:
            if thread is not threading.current_thread():  # the garbage collector may run in this thread
                thread.join(GRACE)
        # A thread blocked in a decoder still uses its pipes: their descriptors must not be reused.
        if not any(thread.is_alive() for thread in self.threads):
            for descriptor in [*self.replies, *self.ours]:
                os.close(descriptor)

    def _start_thread(self, job: LoadJob, tasks: int) -> None:
        replies = self._reply_pipe(job)
        self.ours.append(replies)
        arguments = (job, self.slots.memory, tasks, replies)
        thread = threading.Thread(target=serve, args=arguments, daemon=True, name=f"loader-{job.worker}")
        thread.start()
        self.threads.append(thread)

    def _start_process(self, job: LoadJob, tasks: int) -> None:
        descriptors = (self.slots.descriptor, tasks, self._reply_pipe(job))
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hpcdl.data.loader.worker", *map(str, descriptors)],
                stdin=subprocess.PIPE,
                pass_fds=descriptors,
                process_group=0,  # Ctrl-C is for the training, which then ends its workers
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        finally:
            os.close(descriptors[-1])
        self.processes[job.worker] = process
        told = sys.path, job.shards.folder.resolve(), job.worker, cloudpickle.dumps(job.decode), job.layout
        assert process.stdin is not None  # a pipe
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it has already died: `wait` reports it
            pipe.write(pickle.dumps(told))

    def _reply_pipe(self, job: LoadJob) -> int:
        """Return the end that the worker writes to."""
        replies, end = os.pipe()
        self.replies[replies] = job.worker
        self.poll.register(replies, select.POLLIN)
        return end

    def _hear(self, descriptor: int) -> None:
        message = os.read(descriptor, REPLY.size)
        if len(message) < REPLY.size:
            raise WorkerError(self._dead(self.replies[descriptor]))
        number, seconds, length = REPLY.unpack(message)
        if length:
            raise WorkerError(self._failed(number, self.replies[descriptor], _read_all(descriptor, length)))
        self.done[number] = seconds
        del self.busy[number]

    # -- what is said ------------------------------------------------------------------------------------------------

    def _dead(self, worker: int) -> str:
        process = self.processes[worker]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        code = process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with {code}"
        mine = [number for number, (slot, _) in self.busy.items() if self._notes(slot)[WORKER] == worker]
        where = f"in {self._where(min(mine))}" if mine else "while it had no batch; it may have printed why"
        advice = {
            -signal.SIGKILL: "a system short of memory kills so: take fewer workers or a smaller queue",
            -signal.SIGBUS: "a file became shorter while it was read: write the shards again",
        }.get(code or 0, "mend what made it end")
        return (
            f"worker {worker} of the loader (process {process.pid}) {how} {where}; {advice}. No sample is lost: build "
            "the loader again, and give it the state_dict() of this one"
        )

    def _failed(self, number: int, worker: int, error: bytes) -> str:
        return (
            f"worker {worker} of the loader could not make a batch, in {self._where(number)}; mend the shard or "
            f"`decode`, then build the loader again and give it the state_dict() of this one. The worker's error:\n"
            f"{error.decode()}"
        )

    def _stuck(self, number: int, patience: float) -> str:
        slot, _ = self.busy[number]
        worker = int(self._notes(slot)[WORKER])
        who = f"worker {worker}" if worker >= 0 else f"none of the {len(self.jobs)} workers, which all work on others,"
        return (
            f"{who} of the loader has made no batch for {patience:g} s, waiting for {self._where(number)}; mend "
            "`decode`, or give the loader more `patience`"
        )

    def _where(self, number: int) -> str:
        slot, count = self.busy[number]
        notes, shards = self._notes(slot), self.jobs[0].shards
        samples = ", ".join(map(str, notes[NOTES : NOTES + min(count, 4)].tolist()))
        shard = int(notes[SHARD])
        name = f"{shards.shards[shard].path}, " if shard >= 0 else ""
        return f"{name}batch {number} (samples {samples}{', ...' if count > 4 else ''})"

    def _notes(self, slot: int):
        return self.slots.layout.notes(self.slots.memory, slot)


def _read_all(descriptor: int, length: int) -> bytes:
    parts, left = [], length
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _end(process: subprocess.Popen) -> None:
    """End a worker: a healthy one reads to the end of its tasks; one stuck in a long task is killed."""
    deadline = time.monotonic() + 0.2
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    if process.poll() is None:
        process.kill()
    process.wait()
