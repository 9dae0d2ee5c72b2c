"""The wrappers that train the zoo: one class for each column of docs/support.md."""

import torch
from zoo.registry import Kit, Weights, wrapper

from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel


class _Wrapped(Kit):
    """Wrappers with `module`, `synchronize()` and `no_sync()`."""

    def inner(self, model):
        return model.module

    def synchronize(self, *models):
        for model in models:
            model.synchronize()

    def no_sync(self, model):
        return model.no_sync()


@wrapper("DDP")
class DDP(_Wrapped):
    def wrap(self, module, **options):
        return DistributedDataParallel(module, self.comm, **options)

    def weights(self, model) -> Weights:
        return super().weights(model.module)


@wrapper("FSDP")
class FSDP(_Wrapped):
    def wrap(self, module, **options):
        return FullyShardedDataParallel(module, self.comm, **options)

    def clip(self, model, max_norm):
        return model.clip(max_norm)

    def weights(self, model) -> Weights:
        return {name: x for name, x in model.whole_state_dict().items() if isinstance(x, torch.Tensor)}
