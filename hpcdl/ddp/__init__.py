"""Data-parallel training: every rank has the whole model and a part of each batch.

`naive` is the plain step: after backward, one all-reduce averages all gradients. `bucketed` puts gradients together in
messages of a size of your choice; `overlapped` sends them while backward goes on: `DistributedDataParallel`.
`train` trains LeNet-5 with it, from a notebook's engines or as a program (`mpiexec -n 4 hpcdl train`).
"""

from hpcdl.lazy import exports

# Imported when first used: the command line knows the program's options without torch.
__all__, __getattr__, __dir__ = exports(
    __name__, {"DistributedDataParallel": "overlapped", "ShardedSampler": "sampler"}
)
