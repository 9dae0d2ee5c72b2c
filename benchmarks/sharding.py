"""Sharded training steps on two ranks: ZeRO-1 and ZeRO-3 of ours beside torch's and DeepSpeed's, in two processes.

    python -m benchmarks sharding            # minutes; prints tables, writes benchmarks/results/sharding.json
    python -m benchmarks sharding --quick    # seconds: to see that it works, not to be quoted

The networks, four layers of 1024 x 1024 and a transformer of four blocks, are trained by Adam. Every competitor trains
its own copy on the same batch, one thread each, in turns that rotate; torch's go over gloo, ours over MPI. A time is
that of the slower rank. "two local" are both ranks without a byte between them. After the run all competitors must
have the same weights. Two ranks take both cores, so "ZeRO-3" gathers a layer when it is needed; "ZeRO-3, ahead" does it
in a thread beside the layer before. Memory is what a rank keeps of weights, gradients and Adam's states, beside what
`hpcdl.cost.memory` says. DeepSpeed takes part where it is installed, else a line says that it is not.

A checkpoint of the MLP, written by two ranks, is read by three, beside torch's DCP, in turns. Saves by two
processes are killed at random moments. A step with states on disk stands beside `hpcdl.cost.offload`.
"""

import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.killed_saves import killed_saves
from benchmarks.harness.machine import describe
from benchmarks.harness.offloading import measure
from benchmarks.harness.tables import table_of_promises, table_of_times
from benchmarks.harness.turns import rotated
from benchmarks.peers.sharding import (
    LAYERS,
    NETWORKS,
    WIDTH,
    ShardedNetwork,
    ShardingCompetitor,
    adam,
    by_torch,
    deepspeed,
    fsdp_1,
    fsdp_2,
    redundancy,
    update_and_forget,
)
from hpcdl.cluster import find_launcher
from hpcdl.comm.base import Communicator
from hpcdl.cost.memory import zero
from hpcdl.memory import meter
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer
from hpcdl.training import optional

PROMISES = [
    ("ZeRO-3", "FSDP2", 1.8),
    ("ZeRO-3", "FSDP1", 1.2),
    ("ZeRO-1", "ZeroRedundancyOptimizer", 1.3),
    ("ZeRO-3", "DeepSpeed ZeRO-3", 3.0),
    ("ZeRO-1", "DeepSpeed ZeRO-1", 3.0),
]
SOONER = 5.0  # a load onto another number of ranks, beside DCP, which has no checksums
LOADS = {"load onto 3 ranks": "hpcdl, unchecked", "load onto 3 ranks, checksums compared": "hpcdl"}
STAGES = {"ZeRO-1": 1, "ZeRO-2": 2, "ZeRO-3": 3}
MOST_MEMORY = 1.05  # of the formula


# -- in each of the two processes -------------------------------------------------------------------------------------


Build = Callable[[Communicator, ShardedNetwork], ShardingCompetitor]


def local(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
    model = network.make()
    return by_torch(model, adam(model.parameters()))


def zero_1_or_2(stage: int) -> Build:
    def build(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
        model = network.make()
        optimizer = ShardedOptimizer(model.parameters(), comm, adam, stage)
        shards = [shard.piece for shard in optimizer.shards().values()]
        return ShardingCompetitor(model, optimizer.reduce, optimizer.step, [model, optimizer.optimizer, *shards])

    return build


def zero_3(ahead: bool) -> Build:
    def build(comm: Communicator, network: ShardedNetwork) -> ShardingCompetitor:
        net = FullyShardedDataParallel(network.make(), comm, (network.layer,), ahead)
        optimizer = adam(net.parameters())
        return ShardingCompetitor(net, net.synchronize, update_and_forget(optimizer), [net, optimizer])

    return build


COMPETITORS: dict[str, Build] = {
    "two local": local,
    "ZeRO-1": zero_1_or_2(1),
    "ZeRO-2": zero_1_or_2(2),
    "ZeRO-3": zero_3(ahead=False),
    "ZeRO-3, ahead": zero_3(ahead=True),
    "ZeroRedundancyOptimizer": redundancy,
    "FSDP1": fsdp_1,
    "FSDP2": fsdp_2,
}
if optional.found("DeepSpeed"):
    COMPETITORS |= {"DeepSpeed ZeRO-1": deepspeed(1), "DeepSpeed ZeRO-3": deepspeed(3)}


def work(name: str, rounds: int, steps: int) -> dict:
    """Seconds per step of every competitor, of the slower rank, and bytes that a rank keeps with ours."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    warnings.simplefilter("ignore")  # torch's own, of what it will change
    comm, network = MPIComm(check=False), NETWORKS[name]
    x = torch.randn(network.batch, generator=torch.Generator().manual_seed(comm.rank))
    arms = {name: build(comm, network) for name, build in COMPETITORS.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in rotated(arms, number):
            times[name] += time_steps(arms[name], steps, comm, x)
    same_outputs({name: arm for name, arm in arms.items() if name != "two local"}, x)
    kept = {name: memory(arms[name], x) for name in STAGES}
    slower = MPI.COMM_WORLD.allreduce
    return {
        "steps": {name: [slower(value, op=MPI.MAX) for value in values] for name, values in times.items()},
        "memory": {name: slower(value, op=MPI.MAX) for name, value in kept.items()},
        "parameters": sum(param.numel() for param in arms["two local"].net.parameters()),
    }


def time_steps(arm: ShardingCompetitor, steps: int, comm: Communicator, x: torch.Tensor) -> list[float]:
    """Seconds of `steps` steps, after one to warm up."""
    comm.barrier()
    arm.step(x)
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        arm.step(x)
        seconds.append(time.perf_counter() - begin)
    comm.barrier()
    return seconds


def same_outputs(arms: dict[str, ShardingCompetitor], x: torch.Tensor) -> None:
    """Every competitor has taken the same steps; AssertionError where one has not."""
    with torch.no_grad():
        outputs = {name: arm.net(x) for name, arm in arms.items()}
    for name, output in outputs.items():
        torch.testing.assert_close(output, outputs["FSDP2"], rtol=1e-2, atol=1e-2, msg=f"{name} differs from FSDP2")


def memory(arm: ShardingCompetitor, x: torch.Tensor) -> int:
    """The bytes of weights, gradients and states that a rank keeps when its gradients are there, before the update."""
    with meter(*arm.known) as m:
        arm.net(x).square().mean().backward()
        arm.reduce()
        live = m.live
    arm.update()
    return sum(live[kind] for kind in ("parameters", "gradients", "optimizer states"))


# -- here -------------------------------------------------------------------------------------------------------------


def promises(found: dict) -> list[dict]:
    """Return what was asked of the networks, of loads and of killed saves beside what was measured."""
    load = {name: statistics.median(times) for name, times in found["load onto 3 ranks"].items()}
    kills = found["killed saves"]
    return [
        *(row for name in NETWORKS for row in promises_of_steps(name, found["networks"][name])),
        *(
            {"what": f"{what} / DCP's, loads per second", "promised": SOONER, "measured": load["DCP"] / load[ours]}
            for what, ours in LOADS.items()
        ),
        {"what": "whole states of killed saves", "promised": 1.0, "measured": kills["whole"] / kills["kills"]},
    ]


def promises_of_steps(network: str, found: dict) -> list[dict]:
    """Of medians, how many steps ours takes in the time of one of the peer's; and memory over the formula."""
    median = {name: statistics.median(times) for name, times in found["steps"].items()}
    speeds = [
        {
            "what": f"{network}: {ours} / {peer}, steps per second",
            "promised": least,
            "measured": median[peer] / median[ours],
        }
        for ours, peer, least in PROMISES
        if peer in median
    ]
    sizes = [
        {
            "what": f"{network}: formula / {name}'s memory",
            "promised": 1 / MOST_MEMORY,
            "measured": formula(name, found["parameters"]) / measured,
        }
        for name, measured in found["memory"].items()
    ]
    return speeds + sizes


def checkpoints(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each load of what two ranks have saved, by three; the model is the one of the steps."""
    pair.run("benchmarks.harness.checkpoints", "save", str(folder))
    return pair.run("benchmarks.harness.checkpoints", "load", str(folder), rounds, ranks=3)


def formula(name: str, parameters: int) -> float:
    """Bytes per rank by Rajbhandari's formula: float32 weights and gradients, and Adam's two states."""
    return zero(parameters, 2, STAGES[name], optimizer=8, weight=4, gradient=4)


def table_of_states(found: dict) -> Table:
    link = f"{found['bytes'] / 1e6:.0f} MB of states, a link of {found['bytes per second'] / 1e9:.2f} GB/s"
    table = Table("Adam's step", "measured ms", "predicted ms", title=f"States on disk: {link}")
    for name, seconds in found["seconds"].items():
        predicted = found["predicted"].get(name)
        table.add_row(name, f"{seconds * 1e3:.1f}", "–" if predicted is None else f"{predicted * 1e3:.1f}")
    return table


def main(
    quick: Annotated[bool, typer.Option(help="Two rounds of two steps.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure sharded training steps on two ranks, checkpoints and offloaded states beside their peers."""
    out = results.file("sharding", quick, out)
    torch.set_num_threads(1)  # of the step with states on disk, too
    console = Console()
    version = optional.found("DeepSpeed") or f"not installed: {optional.advice('DeepSpeed')}"
    machine = describe() | {"mpi": find_launcher().mpi, "DeepSpeed": version}
    console.print_json(json.dumps(machine))
    rounds = (2, 2) if quick else (20, 4)
    found = {"networks": {name: pair.run("benchmarks.sharding", name, *rounds) for name in NETWORKS}}
    with tempfile.TemporaryDirectory() as folder:
        found["load onto 3 ranks"] = checkpoints(Path(folder), 3 if quick else 20)
        found["killed saves"] = killed_saves(5 if quick else 100, Path(folder))
        found["states on disk"] = measure([WIDTH * WIDTH] * LAYERS, Path(folder), 3 if quick else 20)
    kept = promises(found)
    for name, measured in found["networks"].items():
        console.print(table_of_times(measured["steps"], f"{name}: one step on 2 ranks", beside="two local"))
    console.print(table_of_times(found["load onto 3 ranks"], "A checkpoint of 2 ranks, read by 3", "reader"))
    console.print(table_of_states(found["states on disk"]))
    console.print(table_of_promises(kept))
    results.save({"machine": machine, **found, "promises": kept}, out)
    console.print(f"All measurements: {out}")
