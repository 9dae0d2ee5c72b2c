"""An all-reduce that other work can interrupt: a ring that stops after each message, as lab 07 uses it."""

from collections.abc import Iterator

import torch

from hpcdl.comm import Communicator
from hpcdl.ddp.bucketed import laid_out_like


class InFlight:
    """Reduce a bucket's gradients step by step: call `advance()` now and then, and `finish()` at the end.

    Gradients are means over `local_n` samples; afterwards each is the mean over the samples of all ranks of `comm`. A
    parameter without a gradient counts as zeros.
    """

    def __init__(self, bucket: list[torch.Tensor], local_n: int, comm: Communicator):
        grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
        self.bucket = bucket
        self.flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)]) * local_n
        self.steps = _steps(self.flat, comm)

    def advance(self) -> bool:
        """Advance by one step; return False once there is nothing left to do."""
        return next(self.steps, False)

    def finish(self) -> None:
        """Do all remaining steps; then every `param.grad` is the mean over all ranks' samples."""
        while self.advance():
            pass
        means = (self.flat[:-1] / self.flat[-1]).split([param.numel() for param in self.bucket])
        for param, mean in zip(self.bucket, means, strict=True):
            param.grad = laid_out_like(param, mean.view_as(param))


def _steps(x: torch.Tensor, comm: Communicator) -> Iterator[bool]:
    """Yield while a message of a ring all-reduce is under way."""
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        sent, received = comm.isend(given, (rank + 1) % p), comm.irecv(incoming, (rank - 1) % p)
        yield True
        sent.wait()
        received.wait()
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)
