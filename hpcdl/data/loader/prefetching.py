"""Batches prefetched by workers while the training computes: bit-identical to `PlainLoader`'s, but sooner."""

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from hpcdl.data.loader.crew import KINDS, Crew, WorkerError
from hpcdl.data.loader.decoding import fields_for, require_fixed
from hpcdl.data.loader.folder import Shards, opened
from hpcdl.data.loader.order import Share, ShareSequence
from hpcdl.data.loader.shard import Field, Sample
from hpcdl.data.loader.slots import LENT, SlotLayout, Slots
from hpcdl.data.loader.worker import LoadJob

Batch = dict[str, torch.Tensor]


class BatchTimes(NamedTuple):
    """One batch's seconds: for a worker to read and decode it, and for the training to wait for it."""

    load: float
    waited: float


class Loader:
    """Batches of `shards`, this rank's share of each, loaded ahead by `workers`; arguments as in `PlainLoader`.

    At most `queue` batches are loaded or being loaded: if training is slower, workers pause, and memory is bounded by
    `queue` + 2 batches (`nbytes`). A `for` over it is one epoch, or what is left of one. A batch's tensors stay where a
    worker put them, until nothing refers to them.

    Workers are threads: reading and copying release Python's lock, and nothing has to start. A `decode` with much
    Python code needs processes (`kind="process"`), to which it is pickled; they take seconds to start, once.

    `close()` ends the workers, as does `with`, and the end of the last reference. A forked process builds a loader of
    its own: in it, this one raises RuntimeError. Several threads may take batches. Raises WorkerError if a worker dies,
    cannot make a batch, or makes none in `patience` seconds; ValueError for numbers below 1 and samples of no fixed
    shape. Every sample has the fields, dtypes and shapes of sample 0: a worker that makes others cannot make a batch.
    """

    def __init__(
        self,
        shards: Shards | str | Path,
        batch: int,
        rank: int = 0,
        size: int = 1,
        seed: int = 0,
        decode: Callable[[Sample], Sample] | None = None,
        workers: int = 2,
        queue: int = 4,
        kind: str = "thread",
        patience: float = 60.0,
    ):
        if workers < 1 or queue < 1 or kind not in KINDS:
            raise ValueError(
                f"workers is {workers}, queue {queue}, kind {kind!r}; workers and queue are 1 or more, kind is one of "
                f"{', '.join(KINDS)}; PlainLoader needs no workers"
            )
        shards = opened(shards)
        self.schedule = ShareSequence(len(shards), batch, rank, size, seed)
        self.queue, self.patience = queue, patience
        self.timed: deque[BatchTimes] = deque(maxlen=1000)  # of the last batches
        layout = SlotLayout(_fields(shards, decode), self.schedule.capacity)
        self._slots = Slots(layout, queue + LENT)
        self._crew = Crew([LoadJob(i, shards, decode, layout) for i in range(workers)], self._slots, kind)
        self._end = weakref.finalize(self, Crew.close, self._crew)
        self._numbers, self._turn = itertools.count(), threading.Lock()
        self._restart()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all batches together take at most."""
        return self._slots.count * self._slots.layout.nbytes

    @property
    def ahead(self) -> int:
        """Batches that are loaded or on their way, and not taken yet: `queue` at most."""
        return len(self._pending)

    def __len__(self) -> int:
        """Batches in a whole epoch, the same on every rank."""
        return len(self.schedule)

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.schedule.position.epoch
        while self.schedule.position.epoch == epoch:
            yield self.take()

    def take(self) -> Batch:
        """Return the next batch, from the next epoch if one has ended."""
        with self._turn:
            return self._take()

    def _take(self) -> Batch:
        self._load_ahead()
        number, slot, share = self._pending[0]
        begin = time.perf_counter()
        load = self._wait_for(number)
        self.timed.append(BatchTimes(load, time.perf_counter() - begin))
        self._pending.popleft()
        self.schedule.position = share.after
        batch = self._slots.lend(slot, len(share.indices))
        self._load_ahead()
        return batch

    def state_dict(self) -> dict[str, int]:
        """Return the position after the last taken batch, as four numbers; prefetched batches do not count."""
        return self.schedule.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from there; prefetched batches are dropped. Raises ValueError where the state is of other data."""
        self._require_open()
        self.schedule.load_state_dict(state)
        self._crew.drop()
        while self._pending:
            number, slot, _ = self._pending.popleft()
            self._wait_for(number)
            self._slots.free.append(slot)
        self._restart()

    def close(self) -> None:
        """End the workers."""
        self._end()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _restart(self) -> None:
        self._shares = iter(self.schedule)
        self._pending: deque[tuple[int, int, Share]] = deque()

    def _require_open(self) -> None:
        if not self._crew.is_mine:
            raise RuntimeError(
                f"the loader belongs to process {self._crew.owner}, from which this one was forked, and its workers "
                "serve that one; build a loader in each process"
            )
        if not self._end.alive:
            raise RuntimeError("the loader is closed; build another, and give it this one's state_dict()")

    def _load_ahead(self) -> None:
        self._require_open()
        while len(self._pending) < self.queue and self._slots.free:
            number, slot, share = next(self._numbers), self._slots.free.popleft(), next(self._shares)
            self._crew.start(number, slot, share.indices)
            self._pending.append((number, slot, share))

    def _wait_for(self, number: int) -> float:
        try:
            return self._crew.wait(number, self.patience)
        except WorkerError:
            self.close()
            raise


def _fields(shards: Shards, decode: Callable[[Sample], Sample] | None) -> list[Field]:
    """Return the fields of a batch's samples, for which sample 0 stands."""
    return require_fixed(shards.fields) if decode is None else fields_for(decode(shards[0]))
