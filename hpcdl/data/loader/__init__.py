"""Load samples from disk for a training: shards, a shuffle shared by every rank, and prefetched batches.

    write_shards("digits", ({"x": image, "y": label} for image, label in ...))
    loader = Loader(Shards("digits"), batch=64, rank=comm.rank, size=comm.size, workers=2)
    for batch in loader:                    # one epoch; batch["x"] and batch["y"] are tensors of this rank's share
        ...
    state = loader.state_dict()             # in the middle of an epoch, too; resumes on any number of ranks

- `shard`: one file of samples, with checksums; `folder`: many of them, and any sample by its number;
- `order`: the order of samples, and a position in it;
- `plain`: the simplest loader, in the training's own thread;
- `prefetching`: the same batches, prefetched by workers. Workers take tasks from one pipe (`worker`); a `crew` starts,
  awaits and ends them; they put batches into memory that the training reads in place (`slots`).

At most `queue` batches are prefetched, so memory is bounded, and workers pause if the training is slow.
Seconds are predicted by `hpcdl.cost.loading`.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
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
