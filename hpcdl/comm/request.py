"""A message in flight, on any machine."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hpcdl.comm.base import Communicator


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


def share_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether the memory of two contiguous messages overlaps."""
    apart = x.device != y.device or not (x.numel() and y.numel())
    start_x, start_y = x.data_ptr(), y.data_ptr()
    return not apart and start_x < start_y + y.nbytes and start_y < start_x + x.nbytes
