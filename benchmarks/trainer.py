"""What the trainer costs beside a bare loop of the same parts, on two ranks.

    python -m benchmarks trainer            # minutes; prints a table, writes benchmarks/results/trainer.json
    python -m benchmarks trainer --quick    # under a minute: to see that it works, not to be quoted

Three meshes of two ranks train a small gpt by AdamW over MPI, one thread each: replicas (`hpcdl.ddp` alone is the bare
loop), replicas at sharding 3 (`FullyShardedDataParallel` alone), and two stages (`run_stage` alone). The bare loops
neither look at the gradient's norm nor count anything. Both take their steps in the same two processes, in turns that
rotate; a time is that of the slower rank. Afterwards both have the same losses.

The last row is how long four engines take from their start to the end of their first step on a mesh.
"""

import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import psutil
import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.harness import pair, results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated
from hpcdl.cluster import Cluster, OversubscribedWarning, find_launcher
from hpcdl.comm.base import Communicator
from hpcdl.ddp import DistributedDataParallel
from hpcdl.parallel import Layers, Mesh, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import SCHEDULES
from hpcdl.sharding import FullyShardedDataParallel
from hpcdl.training import Configuration, Trainer, run_on
from hpcdl.training.hybrid.models import Model, build

MOST = 1.03  # seconds of the trainer over those of the bare loop
LONGEST = 6.0  # seconds from the start of four engines to the end of their first step
BASE = Configuration(model="gpt", size="small", batch=16, steps=1)
MESHES = {
    "data=2": BASE.changed(mesh=(2, 1, 1, 1)),
    "data=2, sharding 3": BASE.changed(mesh=(2, 1, 1, 1), sharding=3),
    "pipeline=2": BASE.changed(mesh=(1, 2, 1, 1), microbatches=4),
}

Step = Callable[[torch.Tensor], float]  # this replica's samples -> this rank's part of the loss


# -- in each of the two processes -------------------------------------------------------------------------------------


def by_trainer(comm: Communicator, configuration: Configuration) -> Step:
    trainer = Trainer(comm, configuration)
    return lambda mine: trainer.step(0, mine)["loss"]


def bare(comm: Communicator, configuration: Configuration) -> Step:
    """Return the same parts, joined by hand."""
    mesh, model = Mesh(comm, **configuration.axes), build("gpt", configuration.size)
    torch.manual_seed(configuration.seed)
    layers = model.split(model.dense(), mesh)
    step = stages if mesh.pipeline.size > 1 else replicas
    return step(mesh, model, layers, configuration)


def replicas(mesh: Mesh, model: Model, layers: nn.Sequential, configuration: Configuration) -> Step:
    from hpcdl.parallel import TransformerBlock

    net: DistributedDataParallel | FullyShardedDataParallel = (
        FullyShardedDataParallel(layers, mesh.replicas, (TransformerBlock,))
        if configuration.sharding
        else DistributedDataParallel(layers, mesh.replicas)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=configuration.lr)

    def step(mine: torch.Tensor) -> float:
        x, y = (samples[mine] for samples in model.data)
        loss = model.loss(net(x), y, mesh)
        loss.backward()
        net.synchronize()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item() / 2

    return step


def stages(mesh: Mesh, model: Model, layers: nn.Sequential, configuration: Configuration) -> Step:
    schedule = SCHEDULES[configuration.schedule]
    orders, parts = schedule.orders(2, configuration.microbatches), schedule.parts(2, 1)
    (chunk,) = cut_layers(list(layers), parts, mesh.stage)
    optimizer, part = torch.optim.AdamW(chunk.parameters(), lr=configuration.lr), Layers(chunk)
    between = model.boundaries(mesh)[:1]

    def step(mine: torch.Tensor) -> float:
        x, y = (samples[mine] for samples in model.data)
        microbatches = cut_batch(x, y, configuration.microbatches)
        run = run_stage(
            mesh.pipeline, [part], orders, microbatches, lambda out, target: model.loss(out, target, mesh), between
        )
        optimizer.step()
        optimizer.zero_grad()
        return run.loss or 0.0

    return step


def work(rounds: int, steps: int) -> dict:
    """Seconds per step of both, of the slower rank, and how far their losses are apart, by mesh."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    comm = MPIComm(check=False)
    found = {}
    for name, configuration in MESHES.items():
        arms = {"trainer": by_trainer(comm, configuration), "bare": bare(comm, configuration)}
        mine = (
            torch.arange(configuration.batch)[comm.rank :: 2] if "data" in name else torch.arange(configuration.batch)
        )
        times: dict[str, list[float]] = {arm: [] for arm in arms}
        losses: dict[str, list[float]] = {arm: [] for arm in arms}
        for number in range(rounds + 1):  # the first to warm up
            for arm in rotated(arms, number):
                comm.barrier()
                for _ in range(steps):
                    begin = time.perf_counter()
                    losses[arm].append(arms[arm](mine))
                    times[arm].append(time.perf_counter() - begin)
        slower = {
            arm: [MPI.COMM_WORLD.allreduce(s, op=MPI.MAX) for s in values[steps:]] for arm, values in times.items()
        }
        whole = [MPI.COMM_WORLD.allreduce(loss) for loss in losses["bare"]]
        apart = max(abs(a - b) for a, b in zip(losses["trainer"], whole, strict=True))
        found[name] = {**slower, "apart": apart}
    return found


# -- here -------------------------------------------------------------------------------------------------------------


def start() -> tuple[float, float]:
    """Return the seconds from the start of four engines to the end of their first step, and the processor's seconds."""
    begin, own = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        cluster = Cluster(n=4)
        with cluster:
            run_on(cluster, say=lambda line: None, model="gpt", mesh="data=2,pipeline=2", microbatches=2, steps=1)
            seconds = time.perf_counter() - begin
            times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return seconds, time.process_time() - own + sum(spent.user + spent.system for spent in times)


def promises(found: dict, starts: list[tuple[float, float]]) -> list[dict]:
    """Of medians, the seconds of the trainer over those of the bare loop, and those of a start."""
    first = {
        "what": "seconds from the start of four engines to the end of their first step",
        "promised": LONGEST,
        "measured": statistics.median(seconds for seconds, _ in starts),
    }
    return [
        {
            "what": f"{name}: seconds of a step, trainer / bare loop",
            "promised": MOST,
            "measured": statistics.median(row["trainer"]) / statistics.median(row["bare"]),
        }
        for name, row in found.items()
    ] + [first]


def table(found: dict) -> Table:
    shown = Table("mesh", "trainer ms, min", "median", "bare ms, min", "median", title="A step of gpt small on 2 ranks")
    for name, row in found.items():
        figures = [f(row[arm]) * 1e3 for arm in ("trainer", "bare") for f in (min, statistics.median)]
        shown.add_row(name, *(f"{figure:.1f}" for figure in figures))
    return shown


def main(
    quick: Annotated[bool, typer.Option(help="Three rounds of two steps.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure what the trainer adds to a bare loop of the same parts."""
    out = results.file("trainer", quick, out)
    console, machine = Console(), describe() | {"mpi": find_launcher().mpi}
    console.print_json(json.dumps(machine))
    found = pair.run("benchmarks.trainer", *((3, 2) if quick else (40, 5)))
    starts = [start() for _ in range(1 if quick else 5)]
    kept = promises(found, starts)
    console.print(table(found))
    for promise in kept:
        console.print(f"{promise['what']}: {promise['measured']:.3f}, asked at most {promise['promised']:.2f}")
    apart = max(row["apart"] for row in found.values())
    assert apart < 1e-4, f"the losses differ by {apart}"
    console.print(f"The losses of both are the same, to {apart:.0e}.")
    results.save({"machine": machine, "meshes": found, "starts": starts, "promises": kept}, out)
    console.print(f"All measurements: {out}")
