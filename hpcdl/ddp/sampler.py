"""Which samples each rank sees in which step: the same shuffle on every rank, each sample once an epoch."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from hpcdl.data.loader import epoch_order


class ShardedSampler(Sampler[list[int]]):
    """Global batches of `batch` out of `n` samples, in an order given by `seed` and the epoch, with a share per rank.

    Rank r takes elements r, r + p, r + 2p, ... of each global batch: shares differ by one element at most, and the last
    batch of an epoch may be smaller, so a rank may get nothing. Every sample comes once an epoch, for any n, p and
    batch.

    It is a batch sampler of torch: `DataLoader(data, batch_sampler=sampler)` gives this rank's share of each step of
    one epoch, with `set_epoch(e)` before it, as for torch's DistributedSampler. All ranks have the same number of
    steps; if a share is empty, `collate_fn` gets an empty list. Raises ValueError for a batch or n below 1, and for a
    rank that is not 0 to `size` - 1: its samples would be seen by no rank.
    """

    def __init__(self, n: int, batch: int, rank: int, size: int, seed: int = 0):
        if batch < 1 or n < 1:
            raise ValueError(f"batch is {batch} and n is {n}; training needs 1 sample or more, and 1 or more per step")
        if not 0 <= rank < size:
            raise ValueError(f"rank is {rank} of size {size}; ranks are 0 to size - 1")
        self.n, self.batch, self.rank, self.size, self.seed = n, batch, rank, size, seed
        self.epoch = 0

    @property
    def steps(self) -> int:
        """Steps per epoch: ceil(n / batch)."""
        return -(-self.n // self.batch)

    def __len__(self) -> int:
        return self.steps

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iteration; each epoch has its own order, and the first is 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        first = self.epoch * self.steps
        return (mine.tolist() for _, mine in self.shares(first, first + self.steps))

    def shares(self, first: int, last: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Return this rank's indices for steps `first` to `last` - 1, counted from the start of training."""
        for epoch in range(first // self.steps, -(-last // self.steps)):
            order = epoch_order(self.n, self.seed, epoch)
            for step, chosen in enumerate(order.split(self.batch), start=epoch * self.steps):
                if first <= step < last:
                    yield step, chosen[self.rank :: self.size]
