"""Data-parallel training: every rank has the whole model and a part of each batch.

`naive` is the plain step: after backward, one all-reduce averages all gradients. `bucketed` puts gradients together in
messages of a size of your choice; `overlapped` sends them while backward goes on: `DistributedDataParallel`.
`train` trains LeNet-5 with it, from a notebook's engines or as a program (`mpiexec -n 4 hpcdl train`).
"""

import importlib

_HOMES = {"DistributedDataParallel": "overlapped", "ShardedSampler": "sampler"}

__all__ = sorted(_HOMES)


def __getattr__(name):
    # Imported when first used: the command line knows the program's options without torch.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
