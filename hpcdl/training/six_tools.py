"""One training, by torch's tools and by ours: the same model, seed and samples, so that only the tool differs.

    torchrun --nproc-per-node 2 -m hpcdl.training.six_tools DDP      # on gloo: a line of JSON from rank 0
    simulate(train, 2, "FSDP2")                                      # on simulated ranks: who sends what

Each way is a function that prepares the model: its lines are what the tool asks of its user.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

from hpcdl.comm import Communicator

WIDTH, LAYERS, ROWS, RATE = 256, 4, 64, 0.1
MIXED_IN = 1 / 16


class Prepared(NamedTuple):
    """A model, its optimizer, what to call after the backward pass; `alike`: all ranks take the whole batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    synchronize: Callable[[], Any] = lambda: None
    alike: bool = False


def network(width: int = WIDTH) -> nn.Sequential:
    """Pairs of linear layers with tanh between them, in float64, the same on all ranks."""
    g = torch.Generator().manual_seed(0)
    layers = [nn.Linear(width, width, bias=False, dtype=torch.float64) for _ in range(LAYERS)]
    for layer in layers:
        layer.weight.data = torch.randn(width, width, generator=g, dtype=torch.float64) / width**0.5
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())])


def ddp(model: nn.Sequential, comm: Communicator) -> Prepared:
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model)
    return Prepared(wrapped, torch.optim.SGD(wrapped.parameters(), RATE))


def fsdp2(model: nn.Sequential, comm: Communicator) -> Prepared:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (comm.size,))
    for layer in list(model)[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Prepared(model, torch.optim.SGD(model.parameters(), RATE))


def dtensor(model: nn.Sequential, comm: Communicator) -> Prepared:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (comm.size,))
    plan: dict[str, ParallelStyle] = {
        str(i): RowwiseParallel() if i % 4 else ColwiseParallel() for i in range(0, 2 * LAYERS, 2)
    }
    parallelize_module(model, mesh, plan)
    return Prepared(model, torch.optim.SGD(model.parameters(), RATE), alike=True)


def our_ddp(model: nn.Sequential, comm: Communicator) -> Prepared:
    from hpcdl.ddp import DistributedDataParallel

    wrapped = DistributedDataParallel(model, comm)
    return Prepared(wrapped, torch.optim.SGD(wrapped.parameters(), RATE), wrapped.synchronize)


def our_sharding(model: nn.Sequential, comm: Communicator) -> Prepared:
    from hpcdl.sharding import FullyShardedDataParallel

    wrapped = FullyShardedDataParallel(model, comm)
    return Prepared(wrapped, torch.optim.SGD(wrapped.parameters(), RATE), wrapped.synchronize)


WAYS: dict[str, Callable[[nn.Sequential, Communicator], Prepared]] = {
    "DDP": ddp,
    "FSDP2": fsdp2,
    "DTensor": dtensor,
    "hpcdl.ddp": our_ddp,
    "hpcdl.sharding": our_sharding,
}


def steps(prepared: Prepared, comm: Communicator, count: int, width: int) -> tuple[list[float], float]:
    """The mean loss of each step, on every rank, and the shortest step's seconds."""
    g, losses, took = torch.Generator().manual_seed(1), list[torch.Tensor](), float("inf")
    for _ in range(count):
        x = torch.randn(ROWS, width, generator=g, dtype=torch.float64)
        mine = x if prepared.alike else x.tensor_split(comm.size)[comm.rank]
        begin = time.perf_counter()
        loss = mse_loss(prepared.model(mine), mine.flip(1) * MIXED_IN)
        loss.backward()
        prepared.synchronize()
        prepared.optimizer.step()
        took = min(took, time.perf_counter() - begin)
        prepared.optimizer.zero_grad()
        losses.append(loss.detach())
    mean = torch.stack(losses) / comm.size
    comm.all_reduce(mean)
    return mean.tolist(), took


def train(comm: Communicator, way: str, count: int = 20, width: int = WIDTH) -> list[float]:
    """The losses of a training on ranks of any machine of ours, torch's process group among them."""
    from hpcdl.training.process_group import process_group

    with process_group(comm):
        return steps(WAYS[way](network(width), comm), comm, count, width)[0]


def serial(count: int = 20, width: int = WIDTH) -> list[float]:
    """The losses of one process without any tool."""
    from hpcdl.comm import simulate

    def alone(comm: Communicator) -> list[float]:
        model = network(width)
        return steps(Prepared(model, torch.optim.SGD(model.parameters(), RATE)), comm, count, width)[0]

    return simulate(alone, 1).results[0]


def main(way: str) -> None:
    """This process's part of a training that torchrun started; rank 0 prints what it found."""
    from hpcdl.comm.distributed import TorchComm

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    comm = TorchComm()
    losses, took = steps(WAYS[way](network(), comm), comm, 20, WIDTH)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if comm.rank == 0:
        print(json.dumps({"losses": losses, "seconds": took, "peak": peak}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
