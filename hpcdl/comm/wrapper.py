"""A communicator around another: the base of groups, traces and separate tags."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch

from hpcdl.comm.base import Background, Communicator
from hpcdl.comm.channels import Channels
from hpcdl.comm.request import Request


class Wrapper(Communicator):
    """Passes every operation on to `comm`; a subclass may change ranks and tags."""

    def __init__(self, comm: Communicator):
        self.comm, self.rank, self.size, self.devices = comm, comm.rank, comm.size, comm.devices
        self.segment, self.silent, self.misfits_abort = comm.segment, comm.silent, comm.misfits_abort

    @abstractmethod
    def wrap(self, comm: Communicator) -> Communicator:
        """Wrap another communicator of the same ranks in the same way."""

    def inner_rank(self, rank: int) -> int:
        """Return the number of `rank` in the inner communicator."""
        return rank

    def inner_tag(self, tag: int) -> int:
        """Return the inner communicator's tag for a message with `tag`."""
        return tag

    def clock(self) -> float:
        return self.comm.clock()

    def empty(self, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return self.comm.empty(numel, dtype)

    def lends(self, x: torch.Tensor) -> bool | None:
        return self.comm.lends(x)

    @property
    def channels(self) -> Channels:
        return self.comm.channels

    def labelled(self, kind: str) -> Communicator:
        inner = self.comm.labelled(kind)
        return self if inner is self.comm else self.wrap(inner)

    def _channel(self) -> int:
        return self.comm._channel()

    def _background(self, channel: int) -> Background:
        return WrappedBackground(self.comm._background(channel), self.wrap)

    def progress(self) -> None:
        self.comm.progress()

    def accumulate(self, out: torch.Tensor, x: torch.Tensor, weight: float = 1.0) -> None:
        self.comm.accumulate(out, x, weight)

    def compute(self, seconds: float) -> None:
        self.comm.compute(seconds)

    def _isend(self, op, x, dest, tag):
        return self.comm._isend(op, x, self.inner_rank(dest), self.inner_tag(tag))

    def _irecv(self, op, out, source, tag):
        return self.comm._irecv(op, out, self.inner_rank(source), self.inner_tag(tag))

    def _wait(self, op, *requests):
        self.comm._wait(op, *requests)

    def _wait_any(self, op: str, requests: Sequence[Request]) -> int:
        return self.comm._wait_any(op, requests)

    def _sendrecv(self, x, dest, out, source, tag):
        self.comm._sendrecv(x, self.inner_rank(dest), out, self.inner_rank(source), self.inner_tag(tag))

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        dest, source, tag = self.inner_rank(dest), self.inner_rank(source), self.inner_tag(tag)
        self.comm._sendrecv_add(x, dest, out, source, scratch, weight, tag)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        dest, source, tag = self.inner_rank(dest), self.inner_rank(source), self.inner_tag(tag)
        self.comm._sendrecv_add_back(x, dest, out, source, scratch, weight, tag)

    def _broadcast(self, x, root):
        self.comm._broadcast(x, self.inner_rank(root))

    def _all_reduce(self, x):
        self.comm._all_reduce(x)

    def _barrier(self):
        self.comm._barrier()


class WrappedBackground(Background):
    """The background of the inner communicator; `wrap` wraps the communicator that calls receive."""

    def __init__(self, inner: Background, wrap: Callable[[Communicator], Communicator]):
        self._inner, self._wrap = inner, wrap

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._inner.start(lambda comm: f(self._wrap(comm)))

    def wait(self) -> None:
        self._inner.wait()

    def close(self) -> None:
        self._inner.close()
