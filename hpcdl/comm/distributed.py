"""The torch.distributed machine: gloo between CPUs, NCCL between GPUs."""

import time

import torch
import torch.distributed as dist

from hpcdl.comm.base import CommError, Communicator, Request, describe


class _Message(Request):
    __slots__ = ("work",)


class TorchComm(Communicator):
    """This process in a torch.distributed `group` (the default group if None), after `init_process_group`.

    gloo takes CPU tensors, NCCL those of this rank's GPU. How long a wait may last is the group's timeout. NCCL has no
    tags: there, messages between two ranks arrive in the order in which they were sent, whatever their tag.
    """

    def __init__(self, group: dist.ProcessGroup | None = None):
        if not dist.is_initialized():
            raise RuntimeError("TorchComm: call torch.distributed.init_process_group first, or start with torchrun")
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._nccl = dist.get_backend(group) == "nccl"
        self.devices = ("cuda",) if self._nccl else ("cpu",)

    def clock(self) -> float:
        if self._nccl:
            torch.cuda.synchronize()  # its operations are only queued when a call returns
        return time.perf_counter()

    def background(self):
        return _Stream(self) if self._nccl else super().background()

    def sendrecv(self, x, dest, out, source, tag=0):
        if not self._nccl:
            super().sendrecv(x, dest, out, source, tag)
            return
        # NCCL must be told of both at once: one after the other, two ranks would wait for each other's second.
        dest = self._check("sendrecv", "x", x, "dest", dest, tag)
        source = self._check("sendrecv", "out", out, "source", source, tag)
        outgoing = dist.P2POp(dist.isend, x.detach(), group=self.group, group_peer=dest)
        incoming = dist.P2POp(dist.irecv, out.detach(), group=self.group, group_peer=source)
        for work in dist.batch_isend_irecv([outgoing, incoming]):
            work.wait()

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        self.sendrecv(x, dest, scratch, source, tag)
        self.accumulate(out, scratch, weight)

    def _isend(self, op, x, dest, tag):
        message = _Message(self, op, "dest", x, dest, tag)
        message.work = dist.isend(x.detach(), group=self.group, tag=tag, group_dst=dest)
        return message

    def _irecv(self, op, out, source, tag):
        message = _Message(self, op, "source", out, source, tag)
        message.work = dist.irecv(out.detach(), group=self.group, tag=tag, group_src=source)
        return message

    def _wait(self, op, *requests):
        try:
            for request in requests:
                request.work.wait()
                request.done = True
        except RuntimeError as error:
            raise CommError(f"rank {self.rank}: {describe(op, requests)}: {error}") from error

    def _broadcast(self, x, root):
        dist.broadcast(x.detach(), group=self.group, group_src=root)

    def _all_reduce(self, x):
        dist.all_reduce(x.detach(), group=self.group)

    def _barrier(self):
        dist.barrier(self.group)


class _Stream:
    """A background on the GPU: what is started is queued on a stream beside the one that computes."""

    def __init__(self, comm: TorchComm):
        self.comm, self._stream = comm, torch.cuda.Stream()

    def start(self, f):
        self._stream.wait_stream(torch.cuda.current_stream())  # it reads what was computed so far
        with torch.cuda.stream(self._stream):
            f(self.comm)

    def wait(self):
        torch.cuda.current_stream().wait_stream(self._stream)

    def close(self): ...
