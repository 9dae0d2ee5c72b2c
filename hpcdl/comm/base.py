"""The base of all machines: the public operations, which check their arguments here, once.

A machine subclasses `Communicator` and supplies the operations with a leading underscore, which trust their arguments.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING

import torch

from hpcdl.comm.channels import Channels
from hpcdl.comm.request import TAGS, Request, check_sum, share_memory

if TYPE_CHECKING:
    from hpcdl.comm.sharing import SharedTensor


class Background(ABC):
    """Runs calls concurrently with a rank's own work, one after another, in the order of `start`.

    A thread (MPI, gloo), a stream (NCCL), a second clock (simulated); otherwise `Foreground`.
    """

    @abstractmethod
    def start(self, f: Callable[["Communicator"], None]) -> None:
        """Call `f(comm)` after all calls started before.

        Its `comm` has the same ranks and supports only messages, which never match the rank's own.
        """

    @abstractmethod
    def wait(self) -> None:
        """Return when all calls are done; raise the error of a call."""

    @abstractmethod
    def close(self) -> None:
        """Abandon running calls, and start no more."""


class Foreground(Background):
    """No background: each call runs before `start` returns."""

    def __init__(self, comm: "Communicator"):
        self.comm = comm

    def start(self, f: Callable[["Communicator"], None]) -> None:
        f(self.comm)

    def wait(self) -> None:
        """Return at once: nothing is running."""

    close = wait


class Communicator(ABC):
    """`size` ranks that exchange tensors; this is rank `rank` of them. The contract is in `hpcdl.comm`."""

    rank: int
    size: int
    devices: tuple[str, ...] = ("cpu",)  # where a tensor may live
    segment: int | None = None  # bytes: a fast ring splits longer messages, which would not fit into the cache
    patient, cancelled = True, False  # in the background: yield the core while waiting; stop waiting
    misfits_abort = False  # a longer message than its receiver expects ends the process, and raises no MisfitError
    silent = False  # no peer answers and received data are meaningless: do not compare ranks

    # -- point to point ---------------------------------------------------------------------------------------------

    def send(self, x: torch.Tensor, dest: int, tag: int = 0) -> None:
        """Send `x` to rank `dest`; it may wait until the receiver has posted its `recv`."""
        dest = self._check("send", "x", x, "dest", dest, tag)
        self._wait("send", self._isend("send", x, dest, tag))

    def recv(self, out: torch.Tensor, source: int, tag: int = 0) -> None:
        """Receive a message of `out`'s size from rank `source` into `out`."""
        source = self._check("recv", "out", out, "source", source, tag)
        self._wait("recv", self._irecv("recv", out, source, tag))

    def recv_with(self, use: Callable[[torch.Tensor], None], scratch: torch.Tensor, source: int, tag: int = 0) -> None:
        """Receive a message of `scratch`'s size from rank `source`, and call `use` with it, flat, to read it there."""
        source = self._check("recv", "scratch", scratch, "source", source, tag)
        self._recv_with(use, scratch, source, tag)

    def sendrecv(self, x: torch.Tensor, dest: int, out: torch.Tensor, source: int, tag: int = 0) -> None:
        """Send `x` to `dest` and receive `out` from `source` at the same time; neither waits for the other."""
        dest = self._check("sendrecv", "x", x, "dest", dest, tag)
        source = self._check("sendrecv", "out", out, "source", source, tag)
        if share_memory(x, out):
            raise ValueError(f"rank {self.rank}: sendrecv: x and out share memory; receive into a tensor of its own")
        self._sendrecv(x, dest, out, source, tag)

    def sendrecv_add(
        self,
        x: torch.Tensor,
        dest: int,
        out: torch.Tensor,
        source: int,
        scratch: torch.Tensor,
        weight: float = 1.0,
        tag: int = 0,
        back: bool = False,
    ) -> None:
        """Send `x` to `dest`, and set `out = weight * out + message` from `source`; `scratch` has the same size.

        With `back`, on both sides, send `weight * x` and overwrite it with the sum that `dest` returns.
        """
        dest = self._check("sendrecv_add", "x", x, "dest", dest, tag)
        source = self._check("sendrecv_add", "scratch", scratch, "source", source, tag)
        check_sum(self.rank, x, out, scratch)
        if back:
            self._sendrecv_add_back(x, dest, out, source, scratch, weight, tag)
        else:
            self._sendrecv_add(x, dest, out, source, scratch, weight, tag)

    def isend(self, x: torch.Tensor, dest: int, tag: int = 0) -> Request:
        """Begin to send `x`; leave it unchanged until the request's `wait()` returns."""
        return self._isend("isend", x, self._check("isend", "x", x, "dest", dest, tag), tag)

    def irecv(self, out: torch.Tensor, source: int, tag: int = 0) -> Request:
        """Begin to receive into `out`; it is filled when the request's `wait()` returns."""
        return self._irecv("irecv", out, self._check("irecv", "out", out, "source", source, tag), tag)

    def wait_any(self, requests: Sequence[Request]) -> int:
        """Wait until one of `requests` is complete; return its index. Requests already waited for do not count.

        So a server may replace the completed request and wait again. Raises ValueError if no request is left.
        """
        waiting = [i for i, request in enumerate(requests) if not request.done]
        if not waiting:
            raise ValueError(
                f"rank {self.rank}: wait_any: all {len(requests)} requests have been waited for; post a new one first"
            )
        first = waiting[self._wait_any("wait_any", [requests[i] for i in waiting])]
        requests[first].done = True
        return first

    # -- the machine's own collectives ------------------------------------------------------------------------------

    def broadcast(self, x: torch.Tensor, root: int = 0) -> None:
        """Overwrite `x` on every rank with rank `root`'s."""
        self.check_tensor("broadcast", "x", x)
        self._broadcast(x, self.check_rank("broadcast", "root", root))

    def all_reduce(self, x: torch.Tensor) -> None:
        """Overwrite `x` on every rank with the sum of all ranks' `x`."""
        self.check_tensor("all_reduce", "x", x)
        self._all_reduce(x)

    def barrier(self) -> None:
        """Wait until every rank has reached the barrier."""
        self._barrier()

    # -- work -------------------------------------------------------------------------------------------------------

    def accumulate(self, out: torch.Tensor, x: torch.Tensor, weight: float = 1.0) -> None:
        """`out = weight * out + x`, the arithmetic of a reduction."""
        if weight == 1:
            out += x
        elif out.dtype in (torch.float16, torch.bfloat16):
            # torch rounds these once inside its vectors and twice at their ends: the bits would depend on the cut.
            out.copy_(torch.add(x.float(), out.float(), alpha=weight))
        else:
            torch.add(x, out, alpha=weight, out=out)

    def compute(self, seconds: float) -> None:  # noqa: B027 - most machines do nothing here
        """Simulate work of `seconds`: only virtual time passes, and only on the simulated machine."""

    @abstractmethod
    def clock(self) -> float:
        """Return seconds since some moment in the past; virtual on the simulated machine."""

    # -- for fast forms ---------------------------------------------------------------------------------------------

    def empty(self, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a new flat, uninitialised tensor in memory that neighbours may read without a copy."""
        return torch.empty(numel, dtype=dtype, device=self.devices[0])

    def lends(self, x: torch.Tensor) -> bool | None:
        """Return whether neighbours may read `x` in place; None on a machine where they never do."""
        return None

    def background(self) -> Background:
        """Return a background for collectives, with its own channel; all ranks call this."""
        return self._background(self._channel())

    @property
    def channels(self) -> Channels:
        """Return the channels of this rank's backgrounds."""
        return vars(self).setdefault("_channels", Channels())

    def labelled(self, kind: str) -> "Communicator":
        """Return this communicator for messages of a `kind`, such as "gradients": a wrapper may count kinds apart."""
        return self

    def for_thread(self, channel: int) -> "Communicator":
        """Return this machine for another thread of this rank, with messages on `channel`."""
        return self

    def progress(self) -> None:  # noqa: B027 - most machines do nothing here
        """Receive messages that have arrived while this rank waits elsewhere; their senders may be waiting for that."""

    # -- what a machine supplies ------------------------------------------------------------------------------------

    @abstractmethod
    def _isend(self, op: str, x: torch.Tensor, dest: int, tag: int) -> Request: ...

    @abstractmethod
    def _irecv(self, op: str, out: torch.Tensor, source: int, tag: int) -> Request: ...

    @abstractmethod
    def _wait(self, op: str, *requests: Request) -> None:
        """Return when all `requests` are complete; `op` is the operation that waits."""

    def _channel(self) -> int:
        return self.channels.next()

    def _background(self, channel: int) -> Background:
        return Foreground(self)

    def _wait_any(self, op: str, requests: Sequence[Request]) -> int:
        """Return the index of the first complete request of `requests`."""
        raise NotImplementedError(f"rank {self.rank}: {type(self).__name__} cannot {op}; wait for each request in turn")

    def _recv_with(self, use: Callable[[torch.Tensor], None], scratch: torch.Tensor, source: int, tag: int) -> None:
        self._wait("recv", self._irecv("recv", scratch, source, tag))
        use(scratch.view(-1))

    def _sendrecv(self, x: torch.Tensor, dest: int, out: torch.Tensor, source: int, tag: int) -> None:
        incoming = self._irecv("sendrecv", out, source, tag)
        self._wait("sendrecv", self._isend("sendrecv", x, dest, tag), incoming)

    def _sendrecv_add(
        self, x: torch.Tensor, dest: int, out: torch.Tensor, source: int, scratch: torch.Tensor, weight: float, tag: int
    ) -> None:
        incoming = self._irecv("sendrecv_add", scratch, source, tag)
        self._wait("sendrecv_add", self._isend("sendrecv_add", x, dest, tag), incoming)
        self.accumulate(out, scratch, weight)

    def _sendrecv_add_back(
        self, x: torch.Tensor, dest: int, out: torch.Tensor, source: int, scratch: torch.Tensor, weight: float, tag: int
    ) -> None:
        if weight != 1:
            x.mul_(weight)
        self._sendrecv_add(x, dest, out, source, scratch, weight, tag)
        self._sendrecv(out, source, x, dest, tag)

    @abstractmethod
    def _broadcast(self, x: torch.Tensor, root: int) -> None: ...

    @abstractmethod
    def _all_reduce(self, x: torch.Tensor) -> None: ...

    @abstractmethod
    def _barrier(self) -> None: ...

    def _shared_tensor(self, numel: int, dtype: torch.dtype) -> "SharedTensor":
        raise NotImplementedError(
            f"rank {self.rank}: {type(self).__name__} shares no tensors; use MPIComm on one machine, or simulate"
        )

    # -- checks -----------------------------------------------------------------------------------------------------

    def check_tensor(self, op: str, name: str, x: torch.Tensor) -> None:
        """Raise TypeError or ValueError if `x`, the argument `name` of `op`, cannot be sent as it is."""
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"rank {self.rank}: {op}: {name} is a {type(x).__name__}; messages are torch tensors")
        if x.device.type not in self.devices:
            raise ValueError(
                f"rank {self.rank}: {op}: {name} is on {x.device}; {type(self).__name__} takes tensors on "
                f"{' or '.join(self.devices)}: pass {name}.{self.devices[0]}(), or use TorchComm for GPUs"
            )
        if x.layout is not torch.strided or not x.is_contiguous():
            raise ValueError(
                f"rank {self.rank}: {op}: {name} of shape {tuple(x.shape)} is not contiguous; "
                f"use {name}.contiguous(), and for a result copy it back"
            )
        if x.is_conj() or x.is_neg():  # the memory differs from the numbers that the view shows
            view, resolved = ("conjugate", "resolve_conj") if x.is_conj() else ("negative", "resolve_neg")
            raise ValueError(
                f"rank {self.rank}: {op}: {name} is the {view} of what its memory holds; "
                f"use {name}.{resolved}(), and for a result copy it back"
            )

    def check_rank(self, op: str, name: str, rank: int) -> int:
        """Return `rank`, the argument `name` of `op`, as an int; raise TypeError or ValueError if it is not a rank."""
        try:
            rank = index(rank)
        except TypeError:
            raise TypeError(f"rank {self.rank}: {op}: {name} is {rank!r}; a rank is an int") from None
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {self.rank}: {op}: {name} is {rank}; ranks are 0 to {self.size - 1}")
        return rank

    def _check(self, op: str, name: str, x: torch.Tensor, side: str, peer: int, tag: int) -> int:
        self.check_tensor(op, name, x)
        if type(tag) is not int or not 0 <= tag < TAGS:
            raise ValueError(f"rank {self.rank}: {op}: tag is {tag!r}; a tag is an int, 0 or more, below {TAGS:,}")
        return self.check_rank(op, side, peer)
