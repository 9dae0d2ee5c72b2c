"""The simplest loader: it reads and decodes a batch on request, in the training's own thread."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from hpcdl.data.loader.decoding import fields_for, require_fixed, require_like
from hpcdl.data.loader.folder import Shards, opened
from hpcdl.data.loader.order import Share, ShareSequence
from hpcdl.data.loader.shard import Field, Sample

Batch = dict[str, torch.Tensor]


class PlainLoader:
    """Batches of `shards` (or of their folder), this rank's share of each, by field; `decode` converts each sample.

    A `for` over it is one epoch, or what is left of one. `batch` counts the samples of all `size` ranks together.
    Raises ValueError if samples differ in fields, dtypes or shapes, or are bytes of any length.
    """

    def __init__(
        self,
        shards: Shards | str | Path,
        batch: int,
        rank: int = 0,
        size: int = 1,
        seed: int = 0,
        decode: Callable[[Sample], Sample] | None = None,
    ):
        shards = opened(shards)
        self.shards, self.decode = shards, decode
        self._fields: list[Field] | None = None if decode else require_fixed(shards.fields)
        self.schedule = ShareSequence(len(shards), batch, rank, size, seed)
        self.state_dict = self.schedule.state_dict
        self._share: Share | None = None  # the next one, until all its samples are decoded
        self._restart()

    def __len__(self) -> int:
        """Batches in a whole epoch, the same on every rank."""
        return len(self.schedule)

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.schedule.position.epoch
        while self.schedule.position.epoch == epoch:
            self._share = share = self._share or next(self._shares)
            samples = [self._decoded(i) for i in share.indices.tolist()]
            self.schedule.position, self._share = share.after, None
            yield self._together(samples)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from there, also in a `for` that is running. Raises ValueError where the state is of other data."""
        self.schedule.load_state_dict(state)
        self._restart()

    def _restart(self) -> None:
        self._shares, self._share = iter(self.schedule), None

    def _decoded(self, i: int) -> Sample:
        if self.decode is None:
            return self.shards[i]
        sample = self.decode(self.shards[i])
        self._fields = self._fields or fields_for(sample)
        require_like(sample, self._fields, i)
        return sample

    def _together(self, samples: list[Sample]) -> Batch:
        if self._fields is None and self.decode:  # this rank's first share is empty
            self._fields = fields_for(self.decode(self.shards[0]))
        assert self._fields is not None
        return {field.name: _column(field, [sample[field.name] for sample in samples]) for field in self._fields}


def _column(field: Field, values: list) -> torch.Tensor:
    return torch.from_numpy(np.array(values, field.dtype).reshape(len(values), *(field.shape or ())))
