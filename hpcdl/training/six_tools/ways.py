"""For each tool, a function that prepares the model: its lines are what a user of the tool must write."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hpcdl.comm import Communicator
from hpcdl.nn.decoder import Decoder
from hpcdl.training import optional

RATE = 0.5


class Prepared(NamedTuple):
    """A model, its optimizer and a function to call after backward; `alike`: all ranks take the whole batch."""

    model: nn.Module
    optimizer: Any  # with torch's step and zero_grad
    synchronize: Callable[[], Any] = lambda: None
    alike: bool = False
    backward: Callable[[Tensor], Any] = Tensor.backward


def ddp(model: nn.Module, comm: Communicator) -> Prepared:
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model)
    return Prepared(wrapped, torch.optim.SGD(wrapped.parameters(), RATE))


def fsdp2(model: nn.Module, comm: Communicator) -> Prepared:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (comm.size,))
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Prepared(model, torch.optim.SGD(model.parameters(), RATE))


def dtensor(model: nn.Module, comm: Communicator) -> Prepared:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

    first, second = pairs(model)
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in first}
    plan |= {name: RowwiseParallel() for name in second}
    parallelize_module(model, init_device_mesh("cpu", (comm.size,)), plan)
    return Prepared(model, torch.optim.SGD(model.parameters(), RATE), alike=True)


def our_ddp(model: nn.Module, comm: Communicator) -> Prepared:
    from hpcdl.ddp import DistributedDataParallel

    wrapped = DistributedDataParallel(model, comm)
    return Prepared(wrapped, torch.optim.SGD(wrapped.parameters(), RATE), wrapped.synchronize)


def our_sharding(model: nn.Module, comm: Communicator) -> Prepared:
    from hpcdl.sharding import FullyShardedDataParallel

    wrapped = FullyShardedDataParallel(model, comm, layers=(type(layers(model)[0]),))
    return Prepared(wrapped, torch.optim.SGD(wrapped.parameters(), RATE), wrapped.synchronize)


def deepspeed(stage: int, model: nn.Module, comm: Communicator) -> Prepared:
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}}
    config |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    config["gradient_clipping"] = 0.0  # otherwise DeepSpeed silently clips to a norm of 1
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    own = SimpleNamespace(step=engine.step, zero_grad=lambda: None)  # its step clears the gradients
    return Prepared(engine, own, backward=engine.backward)


def zero_1(model: nn.Module, comm: Communicator) -> Prepared:
    return deepspeed(1, model, comm)


def zero_3(model: nn.Module, comm: Communicator) -> Prepared:
    return deepspeed(3, model, comm)


Prepare = Callable[[nn.Module, Communicator], Prepared]
WAYS: dict[str, Prepare] = {
    "DDP": ddp,
    "FSDP2": fsdp2,
    "DTensor": dtensor,
    "hpcdl.ddp": our_ddp,
    "hpcdl.sharding": our_sharding,
}
DEEPSPEED: dict[str, Prepare] = {"DeepSpeed ZeRO-1": zero_1, "DeepSpeed ZeRO-3": zero_3}  # its messages are float32


def installed() -> dict[str, Prepare]:
    """Return every way that is installed on this machine."""
    return WAYS | (DEEPSPEED if optional.found("DeepSpeed") else {})


# -- where a model is cut ---------------------------------------------------------------------------------------------


def layers(model: nn.Module) -> list[nn.Module]:
    """Return what FSDP2 gathers one at a time: a transformer's blocks, otherwise the layers with weights."""
    if isinstance(model, Decoder):
        return list(model.blocks)
    return [layer for layer in model.children() if any(True for _ in layer.parameters())]


def pairs(model: nn.Module) -> tuple[list[str], list[str]]:
    """Return consecutive linear layers for DTensor: the first of each pair is split by columns, the second by rows."""
    if isinstance(model, Decoder):
        blocks = [f"blocks.{i}." for i in range(len(model.blocks))]
        first = [block + name for block in blocks for name in ("attention.q", "attention.k", "attention.v", "mlp.up")]
        return first, [block + name for block in blocks for name in ("attention.out", "mlp.down")]
    linear = [name for name, layer in model.named_children() if isinstance(layer, nn.Linear)]
    return linear[0:-1:2], linear[1::2]
