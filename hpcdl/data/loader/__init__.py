"""Samples from disk to the training: shards, a shuffle that every rank shares, and batches loaded ahead.

    write_shards("digits", ({"x": image, "y": label} for image, label in ...))
    loader = Loader(Shards("digits"), batch=64, rank=comm.rank, size=comm.size, workers=2)
    for batch in loader:                    # one epoch; batch["x"] and batch["y"] are tensors of this rank's share
        ...
    state = loader.state_dict()             # in the middle of an epoch, too; resumes on any number of ranks

- `shard`: one file of samples, with checksums; `folder`: many of them, and any sample by its number;
- `order`: which samples come when, and a position in that order;
- `plain`: the loader as a student reads it, in the training's own thread;
- `prefetching`: the same batches loaded ahead by workers. They take tasks from one pipe (`worker`), are started, waited
  for and ended by a `crew`, and put their batches into memory that the training reads where it is (`slots`).

No more than `queue` batches are loaded ahead, so memory is bounded, and a training that is slow stops its workers.
Seconds are predicted by `hpcdl.cost.loading`.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.data.loader.crew import WorkerError
    from hpcdl.data.loader.folder import Shards, write_shards
    from hpcdl.data.loader.order import Position, epoch_order
    from hpcdl.data.loader.plain import PlainLoader
    from hpcdl.data.loader.prefetching import Loader

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Loader": "prefetching",
        "PlainLoader": "plain",
        "Position": "order",
        "Shards": "folder",
        "WorkerError": "crew",
        "epoch_order": "order",
        "write_shards": "folder",
    },
)
