"""Keys and values around the ring: the common part of the plain and the fast form of ring attention.

Queries stay where they are, keys and values visit each rank once; a message travels while attention to the block before
is computed (Liu, Zaharia and Abbeel 2023, "Ring attention with blockwise transformers for near-infinite context").
"""

import math
from collections.abc import Iterator

import torch

from hpcdl.comm import Communicator
from hpcdl.parallel.shares import shares


class Ring:
    """The ranks of `comm` with `length` tokens in total; a block is (2, batch, heads, tokens, width), keys and
    values."""

    def __init__(self, comm: Communicator, length: int):
        self.comm, self.sizes = comm, shares(length, comm.size)
        self.after, self.before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def visits(self, k: torch.Tensor, v: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """(rank, its block) of each rank, this one first; the next is in flight meanwhile: p - 1 messages each way.

        Two buffers alternate: a block is valid until the next one is requested.
        """
        p, rank, block_numel = self.comm.size, self.comm.rank, 2 * math.prod(k.shape[:2]) * self.sizes[0] * k.shape[3]
        here, there = (self.comm.empty(block_numel, k.dtype) for _ in range(2))
        block = torch.stack([k, v], out=self._view(here, k, rank))
        for step in range(p):
            requests, owner, coming = [], (rank - step) % p, block
            if step < p - 1:
                coming = self._view(there, k, (owner - 1) % p)
                requests = [self.comm.irecv(coming, self.before), self.comm.isend(block, self.after)]
            yield owner, block
            for request in requests:
                request.wait()
            block, here, there = coming, there, here

    def home(self, sums: torch.Tensor | None, gradient: torch.Tensor, owner: int) -> torch.Tensor:
        """Add this rank's part of the gradient of `owner`'s block, and pass it on after it; returns what comes next.

        `sums` is the sum so far, None on the first rank that the block visits. On the last rank the result is complete.
        """
        total = gradient if sums is None else sums.add_(gradient)
        size = self.sizes[(owner - 1) % self.comm.size]
        coming = total.new_empty(*total.shape[:3], size, total.shape[4])
        self.comm.sendrecv(total, self.after, coming, self.before, tag=1)
        return coming

    def _view(self, memory: torch.Tensor, k: torch.Tensor, owner: int) -> torch.Tensor:
        """Return the beginning of `memory` as `owner`'s block."""
        shape = 2, *k.shape[:2], self.sizes[owner], k.shape[3]
        return memory[: math.prod(shape)].view(shape)


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, comm: Communicator, length: int | None) -> int:
    """Return the number of all ranks' tokens, by default as many on each; ValueError if q, k and v are no share."""
    whole = q.shape[2] * comm.size if length is None else length
    if not q.shape == k.shape == v.shape or q.dim() != 4 or q.shape[2] != shares(whole, comm.size)[comm.rank]:
        raise ValueError(
            f"rank {comm.rank}: q, k, v are {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}; each is (batch, "
            f"heads, tokens, width) with this rank's {shares(whole, comm.size)[comm.rank]} of {whole} tokens"
        )
    return whole
