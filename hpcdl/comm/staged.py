"""gloo between ranks that share a GPU: it sends only the processor's tensors, so each message is copied there and back.

NCCL needs a GPU for each rank. More ranks than GPUs gain nothing but practice.
"""

import torch
import torch.distributed as dist

from hpcdl.comm.distributed import TorchComm, _Message, _under_way


class _Arriving(_Message):
    """A message that arrives at `here`, in the processor's memory, and is copied to `x` when it is complete."""

    __slots__ = ("here",)

    here: torch.Tensor

    def finish(self) -> None:
        super().finish()
        self.x.detach().copy_(self.here)


class StagedComm(TorchComm):
    """This process in a torch.distributed `group` of gloo, whose messages are on `device`: cuda, or the processor."""

    def __init__(self, group: dist.ProcessGroup | None = None, device: str = "cuda"):
        super().__init__(group)
        self.devices = (device, "cpu")

    def _isend(self, op, x, dest, tag):
        return super()._isend(op, _copy(x), dest, tag)

    def _irecv(self, op, out, source, tag):
        here = torch.empty(out.shape, dtype=out.dtype)
        message = _Arriving(self, op, "source", out, source, tag)
        message.here = here
        _under_way(message, dist.irecv(here, group=self.group, tag=tag, group_src=source))
        return message

    def _broadcast(self, x, root):
        here = _copy(x)
        super()._broadcast(here, root)
        x.detach().copy_(here)

    def _all_reduce(self, x):
        here = _copy(x)
        super()._all_reduce(here)
        x.detach().copy_(here)


def _copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of `x` in the processor's memory."""
    return torch.empty(x.shape, dtype=x.dtype).copy_(x.detach())
