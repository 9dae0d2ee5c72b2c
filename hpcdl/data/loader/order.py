"""The order of samples: one order for all ranks in each epoch, and a position in it for any number of ranks."""

from collections.abc import Iterator
from numbers import Integral
from typing import NamedTuple

import numpy as np
import torch

from hpcdl.data.seeds import wrapped


def epoch_order(n: int, seed: int, epoch: int) -> torch.Tensor:
    """Return the samples 0 to n - 1 in the order of this epoch, int64: the same on every rank and machine."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(wrapped(int(seed) * 1_000_003 + epoch)))


class Position(NamedTuple):
    """A place in the order: of `epoch`, all ranks together have had the first `seen` samples."""

    epoch: int = 0
    seen: int = 0


class Share(NamedTuple):
    """One rank's part of a global batch: its samples, and where the training is once they are taken."""

    indices: np.ndarray
    after: Position


def shares(n: int, batch: int, rank: int, size: int, seed: int, start: Position) -> Iterator[Share]:
    """Yield, from `start` and without end, this rank's share of each global batch of `batch` samples.

    Rank r has samples r, r + p, r + 2p, ... of each batch. An epoch's last batch may be smaller; the next epoch has its
    own order. Every sample comes once an epoch, even if the number of ranks or the batch changes.
    """
    epoch, seen = start
    while True:
        order = epoch_order(n, seed, epoch).numpy()
        while seen < n:
            mine = order[seen : seen + batch][rank::size]
            seen = min(n, seen + batch)
            yield Share(mine, Position(epoch, seen) if seen < n else Position(epoch + 1))
        epoch, seen = epoch + 1, 0


class ShareSequence:
    """The shares of one rank from a position on, and the state that a checkpoint keeps.

    Raises ValueError for no samples, a batch below 1, or a rank outside `size`.
    """

    def __init__(self, n: int, batch: int, rank: int, size: int, seed: int):
        if n < 1 or batch < 1 or not 0 <= rank < size:
            raise ValueError(
                f"n is {n}, batch {batch}, rank {rank}, size {size}; there is 1 sample or more, in a batch too, and "
                "ranks are 0 to size - 1"
            )
        self.n, self.batch, self.rank, self.size, self.seed = n, batch, rank, size, seed
        self.position = Position()

    @property
    def capacity(self) -> int:
        """Return the most samples of a share."""
        return -(-min(self.batch, self.n) // self.size)

    def __len__(self) -> int:
        """Batches in a whole epoch: ceil(n / batch), the same on every rank."""
        return -(-self.n // self.batch)

    def __iter__(self) -> Iterator[Share]:
        return shares(self.n, self.batch, self.rank, self.size, self.seed, self.position)

    def state_dict(self) -> dict[str, int]:
        """Return four numbers, the same on every rank, which determine what comes next on any number of ranks and for
        any batch."""
        return {"samples": self.n, "seed": self.seed, "epoch": self.position.epoch, "seen": self.position.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from there. Raises ValueError if the state is of other data, or none that `state_dict` returned."""
        names = ("samples", "seed", "epoch", "seen")
        if not isinstance(state, dict) or any(not isinstance(state.get(name), Integral) for name in names):
            raise ValueError(f"the state is {state!r}; it has the whole numbers {', '.join(names)}, as of state_dict()")
        if state["samples"] != self.n or not 0 <= state["seen"] < self.n or state["epoch"] < 0:
            raise ValueError(f"the state is {state}, and there are {self.n} samples here; it is of other data")
        self.seed, self.position = state["seed"], Position(state["epoch"], state["seen"])
