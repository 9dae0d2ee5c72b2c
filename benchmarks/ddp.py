"""Data-parallel steps on two ranks: ours beside torch's DistributedDataParallel, an all-reduce per tensor, one process.

    python -m benchmarks ddp                 # three minutes; prints tables, writes benchmarks/results/ddp.json
    python -m benchmarks ddp --quick         # seconds: to see that it works, not to be quoted

Every competitor trains its own copy of the same model in the same two processes, one thread each, in turns that rotate.
A time is that of the slower rank. "local" is rank 0 alone while rank 1 sleeps; "two local" are both at the same time,
without any message except a barrier: what two processes cost this machine before a byte has been sent.
The curve over bucket sizes is predicted by `hpcdl.cost`, from all-reduces timed in the same run.
"""

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.harness import pair, results
from benchmarks.harness.machine import describe
from benchmarks.harness.networks import MODELS
from benchmarks.harness.tables import table_of_promises, table_of_times
from benchmarks.harness.turns import rotated
from hpcdl.cluster import find_launcher
from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.comm.base import Communicator
from hpcdl.cost import alpha_beta, collectives
from hpcdl.cost.scaling import Gradient, capped, iteration
from hpcdl.ddp import DistributedDataParallel
from hpcdl.training.momentum import Momentum

MB = 2**20
BUCKETS = (0.1, 0.25, 1.0, 4.0, 25.0)  # MB
DEFAULT = 4.0
TRAIN = 8  # all-reduces timed one after another
PROMISES = [  # model, competitor, at least so many times as fast
    ("LeNet", "torch DDP", 1.25),
    ("MLP", "torch DDP", 1.45),
    ("ResNet", "torch DDP", 1.05),
    ("LeNet", "local", 1 / 1.05),
    ("MLP", "local", 1 / 1.15),
]


# -- in each of the two processes -------------------------------------------------------------------------------------


class Competitor:
    """A model, its optimizer, and how it synchronizes; `step()` is one step on the same batch as all others."""

    def __init__(
        self, model: str, comm: Communicator, wrap: Callable = lambda net: net, synchronize: Callable = lambda net: None
    ):
        build, shape = MODELS[model]
        torch.manual_seed(0)
        self.module = build()
        self.net = wrap(self.module)
        self.optimizer = Momentum(self.module.parameters(), 0.01)
        generator = torch.Generator().manual_seed(comm.rank)
        self.x = torch.randn(shape, generator=generator)
        self.y = torch.randint(0, 10, shape[:1], generator=generator)
        self.synchronize = synchronize

    def step(self) -> None:
        self.optimizer.zero_grad()
        cross_entropy(self.net(self.x), self.y).backward()
        self.synchronize(self.net)
        self.optimizer.step()


def competitors(model: str, comm: Communicator) -> dict[str, Competitor]:
    def ours(bucket_mb, overlap):
        wrap = partial(DistributedDataParallel, comm=comm, bucket_mb=bucket_mb, overlap=overlap)
        return Competitor(model, comm, wrap, DistributedDataParallel.synchronize)

    def per_tensor(net):
        for param in net.parameters():
            comm.all_reduce(param.grad)
            param.grad /= comm.size

    found = {
        "local": Competitor(model, comm),
        "two local": Competitor(model, comm, synchronize=lambda net: comm.barrier()),
        "torch DDP": Competitor(model, comm, nn.parallel.DistributedDataParallel),
        "per tensor": Competitor(model, comm, synchronize=per_tensor),
    }
    found |= {f"{mb:g} MB": ours(mb, overlap=False) for mb in BUCKETS}
    return found | {f"{DEFAULT:g} MB, overlapped": ours(DEFAULT, overlap=True)}


def work(rounds: int, steps: int) -> dict:
    """Time every competitor on every model: seconds per step, of the slower rank, and of all-reduces."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    comm = MPIComm(check=False)
    found: dict[str, Any] = {"steps": {}, "gradients": {}, "all_reduce": []}
    for model in MODELS:
        arms = competitors(model, comm)
        times: dict[str, list[float]] = {name: [] for name in arms}
        for number in range(rounds):
            for name in rotated(arms, number):
                times[name] += time_steps(arms[name], steps, comm, alone=name == "local")
        same_weights(arms)
        found["steps"][model] = times
        params = reversed(list(arms["local"].module.parameters()))
        found["gradients"][model] = [param.nbytes for param in params]
        found["all_reduce"] += time_all_reduces(comm, rounds)
    slower = MPI.COMM_WORLD.allreduce
    for times in found["steps"].values():
        for name, values in times.items():
            times[name] = [slower(value, op=MPI.MAX) for value in values]
    found["all_reduce"] = [(nbytes, slower(seconds, op=MPI.MAX)) for nbytes, seconds in found["all_reduce"]]
    return found


def time_steps(arm: Competitor, steps: int, comm: Communicator, alone: bool) -> list[float]:
    """Seconds of `steps` steps, after one to warm up; with `alone` the other ranks sleep meanwhile."""
    comm.barrier()
    seconds = [0.0] * steps
    if comm.rank == 0 or not alone:
        arm.step()
        for i in range(steps):
            begin = time.perf_counter()
            arm.step()
            seconds[i] = time.perf_counter() - begin
    comm.barrier()
    return seconds


def time_all_reduces(comm: Communicator, rounds: int) -> list[tuple[int, float]]:
    """(bytes, seconds) of all-reduces of 1 KB to 4 MB, as buckets go: one after another, out of the cache's memory."""
    memory, found = comm.empty(8 * 2**20).zero_(), []  # 32 MB
    for nbytes in (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22):
        pieces = memory.split(nbytes // 4)[:TRAIN]
        for _ in range(2 * rounds):
            memory += 1
            comm.barrier()
            begin = time.perf_counter()
            for piece in pieces:
                fast_ring_all_reduce(piece, comm)
            found.append((nbytes, (time.perf_counter() - begin) / len(pieces)))
    return found


def same_weights(arms: dict[str, Competitor]) -> None:
    """Every competitor that sums gradients has taken the same steps; AssertionError where one has not."""
    synchronized = [arm for name, arm in arms.items() if "local" not in name]
    for arm in synchronized[1:]:
        for mine, theirs in zip(arm.module.parameters(), synchronized[0].module.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)


# -- here -------------------------------------------------------------------------------------------------------------


def ratios(steps: dict) -> list[dict]:
    """Return how many steps ours takes in the time of one of each competitor's: of the medians and of the minima."""
    return [
        {
            "model": model,
            "ours": ours,
            "peer": peer,
            "median": statistics.median(times[peer]) / statistics.median(times[ours]),
            "min": min(times[peer]) / min(times[ours]),
        }
        for model, times in steps.items()
        for ours in (name for name in times if "MB" in name)
        for peer in times
        if "MB" not in peer
    ]


def by_size(timed: list[tuple[int, float]]) -> dict[int, list[float]]:
    """Return the seconds of all-reduces by their bytes."""
    return {nbytes: [seconds for size, seconds in timed if size == nbytes] for nbytes in dict(timed)}


def predictions(found: dict) -> list[dict]:
    """The curve over bucket sizes: two local steps and the ring's cost, with alpha and beta fitted to all-reduces."""
    fitted = alpha_beta.fit_collective(collectives.ring, 2, *zip(*found["all_reduce"], strict=True))
    rows = []
    for model, times in found["steps"].items():
        seconds = statistics.median(times["two local"])
        for mb in BUCKETS:
            pieces = capped(gradients(found["gradients"][model], mb * MB, seconds), cap=mb * MB)
            ring = partial(collectives.ring, 2, alpha=fitted.alpha, beta=fitted.beta, itemsize=1)
            predicted = iteration(0.0, pieces, ring, overlap=False).seconds
            measured = statistics.median(times[f"{mb:g} MB"])
            rows.append({"model": model, "bucket_mb": mb, "predicted": predicted, "measured": measured})
    return rows


def gradients(sizes: list[int], cap: float, ready: float) -> list[Gradient]:
    """A model's gradients, all there after `ready` seconds, those above `cap` bytes in pieces, as they travel."""
    pieces = ([int(cap)] * int(n // cap) + [n % int(cap)] * bool(n % int(cap)) if n > cap else [n] for n in sizes)
    return [Gradient(ready, nbytes) for parts in pieces for nbytes in parts]


def promises(rows: list[dict], curve: list[dict]) -> list[dict]:
    found = {(row["model"], row["peer"]): row["median"] for row in rows if row["ours"] == f"{DEFAULT:g} MB"}
    kept = [
        {"what": f"{model}: {DEFAULT:g} MB buckets / {peer}", "promised": promised, "measured": found[model, peer]}
        for model, peer, promised in PROMISES
    ]
    error = max(abs(row["predicted"] / row["measured"] - 1) for row in curve)
    return [*kept, {"what": "1 - largest error of the predicted curves", "promised": 0.8, "measured": 1 - error}]


# -- shown ------------------------------------------------------------------------------------------------------------


def table_of_curve(curve: list[dict]) -> Table:
    table = Table("model", "buckets", "measured ms", "predicted ms", "error", title="Step over bucket size")
    for row in curve:
        error = row["predicted"] / row["measured"] - 1
        cells = f"{row['measured'] * 1e3:.2f}", f"{row['predicted'] * 1e3:.2f}", f"{error:+.0%}"
        table.add_row(row["model"], f"{row['bucket_mb']:g} MB", *cells)
    return table


def main(
    quick: Annotated[bool, typer.Option(help="Two rounds of two steps.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure data-parallel steps on two ranks beside their peers."""
    out = results.file("ddp", quick, out)
    console = Console()
    machine = describe() | {"mpi": find_launcher().mpi}
    console.print_json(json.dumps(machine))
    found = pair.run(__name__, *((2, 2) if quick else (25, 4)))
    rows, curve = ratios(found["steps"]), predictions(found)
    kept = promises(rows, curve)
    for model, times in found["steps"].items():
        console.print(table_of_times(times, f"{model}: one step on 2 ranks", beside="local"))
    console.print(table_of_curve(curve))
    console.print(table_of_promises(kept))
    found["all_reduce"] = by_size(found["all_reduce"])
    everything = {"machine": machine, **found, "ratios": rows, "curve": curve, "promises": kept}
    results.save(everything, out)
    console.print(f"All measurements: {out}")
