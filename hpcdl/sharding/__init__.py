"""Nothing twice: optimizer states, gradients and weights of which every rank keeps its share alone.

| stage | class | each rank keeps a p-th of | bytes sent per rank and step, of Psi bytes of weights |
|---|---|---|---|
| ZeRO-1 | `ShardedOptimizer(params, comm, make)` | optimizer states | 2 Psi (p-1)/p |
| ZeRO-2 | the same with `stage=2` | and gradients | 2 Psi (p-1)/p |
| ZeRO-3 | `FullyShardedDataParallel(module, comm)` | and weights | 3 Psi (p-1)/p |

- `flat` is the idea that all stages share: parameters one after another in a vector, cut so that no two ranks' shares
  differ by more than one element. Nothing is padded, so the formulas hold to the byte, summed over the ranks.
- The gradient is the mean over the samples of all ranks, sum_r (n_r / N) g_r, as in `hpcdl.ddp`; ranks may have
  batches of different lengths, or none. Per step they also exchange a `ballot`: N, and which parameters are in use.
- The optimizer is any of torch's that works elementwise; it sees flat pieces of parameters. `clipping` clips by the
  norm of the whole gradient.
- `Offloaded(optimizer, Disk(folder))` keeps its states on disk, or in the `Host`'s memory, but for the parameters that
  are updated just now; `hpcdl.cost.offload` says what that costs.
- Activations are no matter of ranks: `checkpointed` computes a layer's a second time instead of keeping them, `plan`
  says for which layers that costs least.
- `save(path, step, model.shards(), comm)` writes every rank's shards, `load(path, comm)` finds the last whole state,
  whose `fill(shards)` reads what a rank needs of it, on any number of ranks: see `saving`. `save_dcp` and `load_dcp` do
  the same in the format of torch.distributed.checkpoint.
- Memory is proved by `hpcdl.memory`, beside `hpcdl.cost.memory.zero`; traffic by the trace.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.sharding.checkpointing import checkpointed, plan
    from hpcdl.sharding.clipping import clip
    from hpcdl.sharding.dcp import load_dcp, save_dcp
    from hpcdl.sharding.flat import Layout, Shard
    from hpcdl.sharding.fully_sharded import FullyShardedDataParallel
    from hpcdl.sharding.offload import Disk, Host, Offloaded
    from hpcdl.sharding.optimizer import ShardedOptimizer
    from hpcdl.sharding.saving import Checkpoint, load, save, with_states

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Checkpoint": "saving",
        "Disk": "offload",
        "FullyShardedDataParallel": "fully_sharded",
        "Host": "offload",
        "Layout": "flat",
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
