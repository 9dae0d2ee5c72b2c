"""The wrappers that train the zoo: one class for each column of docs/support.md."""

from itertools import chain

import torch
from zoo.registry import Kit, Weights, wrapper

from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer


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


class _Zero(Kit):
    """The model is as it is, and its optimizer is sharded; samples are counted when the model is called."""

    stage = 1
    # A loop without ZeRO's own `step`, one whose samples a user of ZeRO counts in another way, and what wraps twice.
    # torch traces, and pickle refuses, the zoo's own hook that counts.
    elsewhere = frozenset(
        {
            "no synchronize",
            "LSTM with time first",
            "wrapped twice",
            "wrapped inside",
            "compiled after wrapping",
            "two forwards of other lengths",
            "first input without samples",
            "optimizer made before wrapping",
            "SyncBatchNorm",
            "pickled",
            # The zoo's counting takes tensors, and calls of vmap, too; a rank that does not step leaves the others.
            "numpy as input",
            "without inputs",
            "gradients of single samples clipped",
            "rank 0 alone does not step",
            "vmap of the wrapped model",
            "object as input",
            "evolution strategies",  # forward passes without gradients, which the zoo does not count
            "zero_grad forgotten",  # a step of ZeRO drops gradients
        }
    )

    def __init__(self, comm, entry):
        super().__init__(comm, entry)
        self._optimizers: dict[torch.nn.Module, ShardedOptimizer] = {}

    def wrap(self, module, **options):
        samples = options.get("samples", _length)

        def count(module, args, kwargs):
            if module in self._optimizers and torch.is_grad_enabled():
                self._optimizers[module].count(samples(*args, **kwargs))

        module.register_forward_pre_hook(count, with_kwargs=True)
        return module

    def optimizer(self, model, make, *others):
        params = dict.fromkeys(param for each in (model, *others) for param in each.parameters())
        found = ShardedOptimizer(params, self.comm, make, self.stage, bucket_mb=1e-4)
        self._optimizers |= dict.fromkeys((model, *others), found)
        return found

    def clip(self, model, max_norm):
        return self._optimizers[model].clip(max_norm)


@wrapper("ZeRO-1")
class Zero1(_Zero):
    pass


@wrapper("ZeRO-2")
class Zero2(_Zero):
    stage = 2


def _length(*args, **kwargs):
    inside = chain(
        args,
        kwargs.values(),
        *(each.values() for each in args if isinstance(each, dict)),
        *(each for each in args if isinstance(each, list)),
    )
    return len(next(x for x in inside if isinstance(x, torch.Tensor) and x.dim()))


@wrapper("ZeRO-3")
class FSDP(_Wrapped):
    """`FullyShardedDataParallel`."""

    first = ("in other orders",)

    # Only a rank itself could say what it did to its own pieces; Muon refuses vectors itself.
    elsewhere = frozenset(
        {
            "rank 0 alone loads a state",
            "rank 0 alone changes a bias",
            "Muon",
            "gradient noise",  # drawn for pieces, other numbers
            "factor by the batch's mean",  # it notices other layers only
            "gradients projected by singular vectors",  # the loop takes matrices, and pieces are vectors
        }
    )

    def wrap(self, module, **options):
        layers = (type(module),) if "in layers=" in self.entry.name else ()
        return FullyShardedDataParallel(module, self.comm, layers, **options)

    def clip(self, model, max_norm):
        return model.clip(max_norm)

    def weights(self, model) -> Weights:
        return {name: x for name, x in model.whole_state_dict().items() if isinstance(x, torch.Tensor)}
