"""A message in flight, on any machine."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hpcdl.comm.base import Communicator


TAGS = 2**31  # a tag crosses as a C int


class Request:
    """A message in flight. After `wait()`, you may change its `x` or read its `out`."""

    __slots__ = ("comm", "done", "op", "peer", "side", "tag", "x")

    def __init__(self, comm: "Communicator", op: str, side: str, x: torch.Tensor, peer: int, tag: int):
        self.comm, self.op, self.side, self.x, self.peer, self.tag = comm, op, side, x, peer, tag
        self.done = False  # its rank has waited for it

    def wait(self) -> None:
        """Wait until the message is complete."""
        if not self.done:
            self.comm._wait(self.op, self)
            self.done = True

    @property
    def target(self) -> str:
        """Return the other side as the caller wrote it: "dest=1" or "source=1, tag=3"."""
        return f"{self.side}={self.peer}" + (f", tag={self.tag}" if self.tag else "")


def check_sum(rank: int, x: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor) -> None:
    """Raise ValueError unless `scratch` has the length and dtype of `out`, and none of the three overlap."""
    is_like = isinstance(out, torch.Tensor) and out.numel() == scratch.numel() and out.dtype is scratch.dtype
    if is_like:  # the usual case in a microsecond: a ring asks in each of its steps
        a, b, c, n = x.data_ptr(), out.data_ptr(), scratch.data_ptr(), max(x.nbytes, scratch.nbytes)
        if abs(a - b) >= n and abs(a - c) >= n and abs(b - c) >= n:
            return
    else:
        given = f"{tuple(out.shape)} of {out.dtype}" if isinstance(out, torch.Tensor) else f"a {type(out).__name__}"
        raise ValueError(
            f"rank {rank}: sendrecv_add: out is {given} and scratch {tuple(scratch.shape)} of {scratch.dtype}; "
            f"scratch is a tensor like out: make it with torch.empty_like(out)"
        )
    for name, one, other in (("out and scratch", out, scratch), ("x and scratch", x, scratch), ("x and out", x, out)):
        if share_memory(one, other):
            raise ValueError(f"rank {rank}: sendrecv_add: {name} share memory; give each a tensor of its own")


def share_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether the memory of two contiguous messages overlaps."""
    apart = x.device != y.device or not (x.numel() and y.numel())
    start_x, start_y = x.data_ptr(), y.data_ptr()
    return not apart and start_x < start_y + y.nbytes and start_y < start_x + x.nbytes
