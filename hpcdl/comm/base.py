"""What all machines share: the public operations, checked once here, and the errors they raise.

A machine subclasses `Communicator` and supplies the operations with a leading underscore, which trust their arguments.
"""

from abc import ABC, abstractmethod
from operator import index

import torch


class CommError(RuntimeError):
    """Communication failed: a message that does not fit, a lost message, ranks that disagree."""


class DeadlockError(CommError):
    """Every rank that has not returned waits for another: the message says who waits for whom, and where."""


class RankError(CommError):
    """One rank raised; `rank` says which, `__cause__` is what it raised."""

    def __init__(self, message: str, rank: int):
        super().__init__(message)
        self.rank = rank


class Request:
    """A message under way. After `wait()` its tensor may be used again: `x` changed, `out` read."""

    __slots__ = ("comm", "done", "op", "peer", "side", "tag", "x")

    def __init__(self, comm: "Communicator", op: str, side: str, x: torch.Tensor, peer: int, tag: int):
        self.comm, self.op, self.side, self.x, self.peer, self.tag = comm, op, side, x, peer, tag
        self.done = False

    def wait(self) -> None:
        if not self.done:
            self.comm._wait(self.op, self)

    @property
    def target(self) -> str:
        """The other side, as the caller wrote it: "dest=1" or "source=1, tag=3"."""
        return f"{self.side}={self.peer}" + (f", tag={self.tag}" if self.tag else "")


def describe(op: str, requests: tuple[Request, ...] = (), detail: str = "") -> str:
    """An operation as the caller wrote it: "recv(source=1)", "isend(dest=2).wait()", "broadcast(root=0)"."""
    targets = ", ".join(request.target for request in requests) or detail
    return f"{op}({targets})" + (".wait()" if op.startswith("i") else "")


def size_of(x: torch.Tensor | None) -> str:
    """Number of elements and dtype, as messages say them: "8 float32"; empty without a tensor."""
    return "" if x is None else f"{x.numel()} {str(x.dtype).removeprefix('torch.')}"


def disagreement(rank: int, call: tuple[str, str], other: int, other_call: tuple[str, str]) -> str | None:
    """What to say of two ranks' collectives, each as (text, size of x), that do not match; None where they do."""
    if call[0] != other_call[0]:
        return (
            f"rank {rank} calls {call[0]} where rank {other} called {other_call[0]}; "
            "every rank calls the same collectives in the same order"
        )
    if call[1] != other_call[1]:
        return (
            f"{call[0]}: x is {call[1]} on rank {rank} and {other_call[1]} on rank {other}; every rank needs the same"
        )
    return None


class Communicator(ABC):
    """`size` ranks that exchange tensors; this is rank `rank` of them. The contract is in `hpcdl.comm`."""

    rank: int
    size: int
    devices = ("cpu",)  # where a tensor may live
    segment: int | None = None  # bytes: messages of a ring that are longer would be forgotten by the processor's cache
    patient = True  # in the background: waits leave the core to the rank's own work
    given_up = False  # in the background: nobody waits for the result any more

    # -- point to point ---------------------------------------------------------------------------------------------

    def send(self, x: torch.Tensor, dest: int, tag: int = 0) -> None:
        """Send `x` to rank `dest`; it may wait until the receiver has posted its `recv`."""
        dest = self._check("send", "x", x, "dest", dest, tag)
        self._wait("send", self._isend("send", x, dest, tag))

    def recv(self, out: torch.Tensor, source: int, tag: int = 0) -> None:
        """Receive a message of `out`'s size from rank `source` into `out`."""
        source = self._check("recv", "out", out, "source", source, tag)
        self._wait("recv", self._irecv("recv", out, source, tag))

    def sendrecv(self, x: torch.Tensor, dest: int, out: torch.Tensor, source: int, tag: int = 0) -> None:
        """Send `x` to `dest` and receive `out` from `source` at the same time; neither waits for the other."""
        dest = self._check("sendrecv", "x", x, "dest", dest, tag)
        source = self._check("sendrecv", "out", out, "source", source, tag)
        if _overlap(x, out):
            raise ValueError(f"rank {self.rank}: sendrecv: x and out share memory; receive into a tensor of its own")
        incoming = self._irecv("sendrecv", out, source, tag)
        self._wait("sendrecv", self._isend("sendrecv", x, dest, tag), incoming)

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
        """Send `x` to `dest`; `out = weight * out +` what `source` sends, maybe through `scratch`, of the same size.

        With `back`, on both sides, `weight * x` is sent and becomes `dest`'s `out`: the sums go back.
        """
        dest = self._check("sendrecv_add", "x", x, "dest", dest, tag)
        source = self._check("sendrecv_add", "scratch", scratch, "source", source, tag)
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

    # -- the machine's own collectives ------------------------------------------------------------------------------

    def broadcast(self, x: torch.Tensor, root: int = 0) -> None:
        """Overwrite `x` on every rank with rank `root`'s."""
        self._check_tensor("broadcast", "x", x)
        self._broadcast(x, self._check_peer("broadcast", "root", root))

    def all_reduce(self, x: torch.Tensor) -> None:
        """Overwrite `x` on every rank with the sum of all ranks' `x`."""
        self._check_tensor("all_reduce", "x", x)
        self._all_reduce(x)

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self._barrier()

    # -- memory -----------------------------------------------------------------------------------------------------

    def empty(self, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A new flat tensor of any content, where it is best sent from: neighbours may read it without a copy."""
        return torch.empty(numel, dtype=dtype, device=self.devices[0])

    def lends(self, x: torch.Tensor) -> bool | None:
        """Whether neighbours may read `x` where it is; None on a machine where they never do."""
        return None

    # -- work -------------------------------------------------------------------------------------------------------

    def accumulate(self, out: torch.Tensor, x: torch.Tensor, weight: float = 1.0) -> None:
        """`out = weight * out + x`, the arithmetic of a reduction."""
        if weight == 1:
            out += x
        else:
            torch.add(x, out, alpha=weight, out=out)

    def compute(self, seconds: float) -> None:  # noqa: B027 - most machines do nothing here
        """Stand for work that takes `seconds`; only virtual time passes, and only in the simulated machine."""

    def background(self):
        """A place for collectives beside this rank's own work: `start(f)` calls `f(comm)` there, `wait()` for all."""
        from hpcdl.comm.background import Background  # a Communicator itself

        return Background(self)

    def for_thread(self) -> "Communicator":
        """This machine for another thread of this rank."""
        return self

    def attend(self) -> None:  # noqa: B027 - most machines do nothing here
        """While this rank waits elsewhere: bring in what has come for its receives, since senders may wait for that."""

    @abstractmethod
    def clock(self) -> float:
        """Seconds since some moment in the past, virtual in the simulated machine."""

    # -- what a machine supplies ------------------------------------------------------------------------------------

    @abstractmethod
    def _isend(self, op: str, x: torch.Tensor, dest: int, tag: int) -> Request: ...

    @abstractmethod
    def _irecv(self, op: str, out: torch.Tensor, source: int, tag: int) -> Request: ...

    def _sendrecv_add(self, x, dest: int, out, source: int, scratch, weight: float, tag: int) -> None:
        incoming = self._irecv("sendrecv_add", scratch, source, tag)
        self._wait("sendrecv_add", self._isend("sendrecv_add", x, dest, tag), incoming)
        self.accumulate(out, scratch, weight)

    def _sendrecv_add_back(self, x, dest: int, out, source: int, scratch, weight: float, tag: int) -> None:
        if weight != 1:
            x.mul_(weight)
        self._sendrecv_add(x, dest, out, source, scratch, weight, tag)
        self.sendrecv(out, source, x, dest, tag)

    @abstractmethod
    def _wait(self, op: str, *requests: Request) -> None:
        """Return when all `requests` are complete; `op` is the operation that waits."""

    @abstractmethod
    def _broadcast(self, x: torch.Tensor, root: int) -> None: ...

    @abstractmethod
    def _all_reduce(self, x: torch.Tensor) -> None: ...

    @abstractmethod
    def _barrier(self) -> None: ...

    # -- checks -----------------------------------------------------------------------------------------------------

    def _check(self, op, name, x, side, peer, tag) -> int:
        self._check_tensor(op, name, x)
        if type(tag) is not int or tag < 0:
            raise ValueError(f"rank {self.rank}: {op}: tag is {tag!r}; a tag is an int, 0 or more")
        return self._check_peer(op, side, peer)

    def _check_tensor(self, op: str, name: str, x) -> None:
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

    def _check_peer(self, op: str, name: str, peer) -> int:
        try:
            peer = index(peer)
        except TypeError:
            raise TypeError(f"rank {self.rank}: {op}: {name} is {peer!r}; a rank is an int") from None
        if not 0 <= peer < self.size:
            raise ValueError(f"rank {self.rank}: {op}: {name} is {peer}; ranks are 0 to {self.size - 1}")
        return peer


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.device != y.device or not (x.numel() and y.numel()):
        return False
    start_x, start_y = x.data_ptr(), y.data_ptr()
    return start_x < start_y + y.nbytes and start_y < start_x + x.nbytes
