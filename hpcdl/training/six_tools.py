"""One training, by torch's tools and by ours: the same model, seed and samples, so that only the tool differs.

    torchrun --nproc-per-node 2 -m hpcdl.training.six_tools          # on gloo: of each way a line of JSON from rank 0
    simulate(train, 2, WAYS["FSDP2"])                                # on simulated ranks: who sends what

Each way is a function that prepares the model: its lines are what the tool asks of its user.
"""

import importlib
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from datetime import timedelta
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
    optimizer: Any  # with torch's step and zero_grad
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


Prepare = Callable[[nn.Sequential, Communicator], Prepared]
WAYS: dict[str, Prepare] = {
    "DDP": ddp,
    "FSDP2": fsdp2,
    "DTensor": dtensor,
    "hpcdl.ddp": our_ddp,
    "hpcdl.sharding": our_sharding,
}


def steps(prepared: Prepared, comm: Communicator, count: int, width: int = WIDTH) -> tuple[torch.Tensor, list[float]]:
    """Of each step this rank's part of the mean loss, and its seconds."""
    g, losses, seconds = torch.Generator().manual_seed(1), list[torch.Tensor](), list[float]()
    for _ in range(count):
        x = torch.randn(ROWS, width, generator=g, dtype=torch.float64)
        mine = x if prepared.alike else x.tensor_split(comm.size)[comm.rank]
        begin = time.perf_counter()
        loss = mse_loss(prepared.model(mine), mine.flip(1) * MIXED_IN)
        loss.backward()
        prepared.synchronize()
        prepared.optimizer.step()
        seconds.append(time.perf_counter() - begin)
        prepared.optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses) / comm.size, seconds


def train(comm: Communicator, prepare: Prepare, count: int = 20, width: int = WIDTH) -> list[float]:
    """The mean losses of a training on ranks of any machine of ours, torch's process group among them."""
    from hpcdl.training.process_group import process_group

    with process_group(comm):
        losses, _ = steps(prepare(network(width), comm), comm, count, width)
        comm.all_reduce(losses)
    return losses.tolist()


def sent(prepare: Prepare, p: int = 2, width: int = WIDTH) -> int:
    """The bytes that rank 0 of p sends in a step: what a third step adds to two."""
    from hpcdl.comm import simulate
    from hpcdl.training.process_group import process_group

    def rank(comm: Communicator, count: int) -> None:
        with process_group(comm):
            steps(prepare(network(width), comm), comm, count, width)

    two, three = (simulate(rank, p, count).bytes_sent[0] for count in (2, 3))
    return three - two


def serial(count: int = 20, width: int = WIDTH) -> list[float]:
    """The losses of one process without any tool."""
    from hpcdl.comm import simulate

    def alone(comm: Communicator) -> list[float]:
        model = network(width)
        return steps(Prepared(model, torch.optim.SGD(model.parameters(), RATE)), comm, count, width)[0].tolist()

    return simulate(alone, 1).results[0]


# -- in the processes that torchrun started ---------------------------------------------------------------------------

PATIENCE = timedelta(seconds=240)  # after which a process whose partner has gone gives up


def one_way(way: str, started: float, count: int = 20) -> None:
    """A training by one tool; rank 0 prints what it found.

    `ready` are the seconds from here to the end of the first step, `peak` the bytes of this process at its largest.
    """
    from hpcdl.comm.distributed import TorchComm

    begin = time.perf_counter()
    store, rank, world = next(dist.rendezvous("env://", timeout=PATIENCE))
    dist.init_process_group("gloo", store=dist.PrefixStore(way, store), rank=rank, world_size=world, timeout=PATIENCE)
    comm = TorchComm()
    prepared = WAYS[way](network(), comm)
    prepare = time.perf_counter() - begin
    losses, seconds = steps(prepared, comm, count)
    comm.all_reduce(losses)
    found = {"losses": losses.tolist(), "seconds": seconds, "ready": prepare + seconds[0], "started": started}
    if rank == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"way": way, "peak": peak, **found}), flush=True)
    # Before the group: were DDP's reducer its last owner, it would wait, holding Python's lock, for the group's thread,
    # which may need that lock to let go of a tensor.
    del prepared
    dist.destroy_process_group()


def main(ways: list[str]) -> None:
    """Each way in a fork of this process: Python and torch start once, and memory is each one's own."""
    importlib.import_module("torch._dynamo")  # two seconds that any optimizer takes at its first call: once for all
    torch.set_num_threads(1)
    started = time.time()
    for way in ways or WAYS:
        fork = multiprocessing.get_context("fork").Process(target=one_way, args=(way, started))
        fork.start()
        fork.join()
        if fork.exitcode:
            sys.exit(f"{way} ended with {fork.exitcode}")


if __name__ == "__main__":
    main(sys.argv[1:])
