"""Sharded training (ZeRO): each rank keeps only its shard of optimizer states, gradients and weights.

| stage | class | each rank keeps a p-th of | bytes sent per rank and step, of Psi bytes of weights |
|---|---|---|---|
| ZeRO-1 | `ShardedOptimizer(params, comm, make)` | optimizer states | 2 Psi (p-1)/p |
| ZeRO-2 | the same with `stage=2` | and gradients | 2 Psi (p-1)/p |
| ZeRO-3 | `FullyShardedDataParallel(module, comm)` | and weights | 3 Psi (p-1)/p |

- Begin with `plain`: ZeRO-3 in one sitting.
- `flat` is the idea that all stages share: parameters are concatenated into a vector, which is split so that no two
  ranks' shards differ by more than one element. There is no padding, so the formulas hold to the byte, summed over the
  ranks.
- The gradient is the mean over the samples of all ranks, sum_r (n_r / N) g_r, as in `hpcdl.ddp`; ranks may have
  batches of different lengths, or none. Per step they also exchange a `ballot`: N, and which parameters are in use.
- The optimizer is any torch optimizer that works elementwise; it sees flat pieces of parameters. `clipping` clips by
  the norm of the whole gradient.
- `Offloaded(optimizer, Disk(folder))` keeps its states on disk, or in the `Host`'s memory, except for the parameters
  being updated; `hpcdl.cost.offload` predicts the cost.
- Activations do not depend on ranks: `checkpointed` recomputes a layer's activations instead of keeping them, and
  `plan` chooses the layers for which that costs least.
- `save(path, step, model.shards(), comm)` writes every rank's shards, `load(path, comm)` finds the last complete state;
  its `fill(shards)` reads a rank's part, on any number of ranks: see `saving`. `save_dcp` and `load_dcp` do the same in
  the format of torch.distributed.checkpoint.
- Tests compare memory (`hpcdl.memory`) with `hpcdl.cost.memory.zero`, and traffic with the trace.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.sharding.checkpointing import checkpointed, plan
    from hpcdl.sharding.clipping import clip
    from hpcdl.sharding.dcp import load_dcp, save_dcp
    from hpcdl.sharding.flat import FlatLayout, Shard
    from hpcdl.sharding.fully_sharded import FullyShardedDataParallel
    from hpcdl.sharding.offload import Disk, Host, Offloaded
    from hpcdl.sharding.optimizer import ShardedOptimizer
    from hpcdl.sharding.saving import Checkpoint, load, save, with_states

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Checkpoint": "saving",
        "Disk": "offload",
        "FlatLayout": "flat",
        "FullyShardedDataParallel": "fully_sharded",
        "Host": "offload",
        "Offloaded": "offload",
        "Shard": "flat",
        "ShardedOptimizer": "optimizer",
        "checkpointed": "checkpointing",
        "clip": "clipping",
        "load": "saving",
        "load_dcp": "dcp",
        "plan": "checkpointing",
        "save": "saving",
        "save_dcp": "dcp",
        "with_states": "saving",
    },
)
