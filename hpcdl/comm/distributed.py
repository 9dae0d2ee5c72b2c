"""The torch.distributed machine: gloo between CPUs, NCCL between GPUs."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from hpcdl.comm.background import ThreadedBackground
from hpcdl.comm.base import Background, Communicator
from hpcdl.comm.channels import Channels
from hpcdl.comm.errors import CommError
from hpcdl.comm.request import Request
from hpcdl.comm.words import describe

POLL_SECONDS = 50e-6

_channels: WeakKeyDictionary[Any, Channels] = WeakKeyDictionary()  # by process group


class _Message(Request):
    """A message: torch.distributed's `work`, and the `thread` that waits for it, if any."""

    __slots__ = ("thread", "work")

    work: dist.Work

    def __init__(self, *what: Any):
        super().__init__(*what)
        self.thread: Future | None = None

    def finish(self) -> None:
        """Wait for the message; join the thread that already waits for it, if any."""
        self.work.wait() if self.thread is None else self.thread.result()

    def in_thread(self) -> Future:
        """Return the outcome of `work`, from a thread that waits for it."""
        if self.thread is None:
            self.thread = Future()
            threading.Thread(target=_wait_into, args=(self.work, self.thread), daemon=True).start()
        return self.thread


def _under_way(message: _Message, work: dist.Work | None) -> _Message:
    assert work is not None  # it is None only on ranks outside the group
    message.work = work
    return message


def _wait_into(work: dist.Work, outcome: Future) -> None:
    try:
        outcome.set_result(work.wait())
    except BaseException as error:
        outcome.set_exception(error)


class TorchComm(Communicator):
    """This process in a torch.distributed `group` (the default group if None), after `init_process_group`.

    gloo sends CPU tensors, NCCL those of this rank's GPU. The group's timeout limits each wait. NCCL has no tags:
    messages between two ranks arrive in the order in which they were sent, whatever their tag.
    """

    def __init__(self, group: dist.ProcessGroup | None = None):
        if not dist.is_initialized():
            raise RuntimeError("TorchComm: call torch.distributed.init_process_group first, or start with torchrun")
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._nccl = dist.get_backend(group) == "nccl"
        self.devices = ("cuda",) if self._nccl else ("cpu",)
        self.misfits_abort = not self._nccl

    def clock(self) -> float:
        if self._nccl:
            torch.cuda.synchronize()  # its operations are only queued when a call returns
        return time.perf_counter()

    @property
    def channels(self) -> Channels:
        return _channels.setdefault(self.group or dist.group.WORLD, Channels())

    def _background(self, channel: int) -> Background:
        return StreamBackground(self) if self._nccl else ThreadedBackground(self, channel)

    def _sendrecv(self, x, dest, out, source, tag):
        if not self._nccl:
            super()._sendrecv(x, dest, out, source, tag)
            return
        # NCCL needs both in one call: posted one after the other, each of two ranks would wait for the other's second.
        outgoing = dist.P2POp(dist.isend, x.detach(), group=self.group, group_peer=dest)
        incoming = dist.P2POp(dist.irecv, out.detach(), group=self.group, group_peer=source)
        for work in dist.batch_isend_irecv([outgoing, incoming]):
            work.wait()

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        self._sendrecv(x, dest, scratch, source, tag)
        self.accumulate(out, scratch, weight)

    def _isend(self, op, x, dest, tag):
        work = dist.isend(x.detach(), group=self.group, tag=tag, group_dst=dest)
        return _under_way(_Message(self, op, "dest", x, dest, tag), work)

    def _irecv(self, op, out, source, tag):
        work = dist.irecv(out.detach(), group=self.group, tag=tag, group_src=source)
        return _under_way(_Message(self, op, "source", out, source, tag), work)

    def _wait(self, op, *requests):
        try:
            for request in requests:
                request.finish()
        except RuntimeError as error:
            raise CommError(f"rank {self.rank}: {describe(op, requests)}: {error}") from error

    def _wait_any(self, op, requests):
        first = (_first_by_polling if self._nccl else _first_by_threads)(requests)
        self._wait(op, requests[first])
        return first

    def _broadcast(self, x, root):
        dist.broadcast(x.detach(), group=self.group, group_src=root)

    def _all_reduce(self, x):
        dist.all_reduce(x.detach(), group=self.group)

    def _barrier(self):
        dist.barrier(self.group)


def _first_by_polling(requests: Sequence[_Message]) -> int:
    while True:
        for i, request in enumerate(requests):
            if request.work.is_completed():
                return i
        time.sleep(POLL_SECONDS)


def _first_by_threads(requests: Sequence[_Message]) -> int:
    """Wait with threads: gloo reports a work as complete only after someone has waited for it."""
    outcomes = [request.in_thread() for request in requests]
    wait(outcomes, return_when=FIRST_COMPLETED)
    return next(i for i, outcome in enumerate(outcomes) if outcome.done())


class StreamBackground(Background):
    """A background on the GPU: calls are queued on a second stream next to the computing one."""

    def __init__(self, comm: TorchComm):
        self.comm, self._stream = comm, torch.cuda.Stream()

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())  # its calls read earlier results
        with torch.cuda.stream(self._stream):
            f(self.comm)

    def wait(self) -> None:
        torch.cuda.current_stream().wait_stream(self._stream)

    def close(self) -> None:
        """Do nothing: queued operations still run."""
