"""One training by torch's tools, others' and ours, on two ranks: time, start, memory, bytes, lines.

    python -m benchmarks frameworks            # minutes; prints a table, writes benchmarks/results/frameworks.json
    python -m benchmarks frameworks --quick    # under a minute: to see that it works, not to be quoted

The training is lab `frameworks` (`hpcdl.training.six_tools`), with layers of 1024 x 1024 in float64. Steps are taken in
the same two processes, one thread each, in turns that rotate; torch's go over gloo, ours and Horovod's interface (its
answer) over MPI. A step's time is that of the slower rank. A start is a program of its own, as the tool's user has
it, by torchrun or mpiexec: the seconds from the command to the end of the first step, and the memory of rank 0 at its
largest; starts take turns too. Bytes are counted on simulated ranks. After the run every loss is that of one process.

DeepSpeed and Ray are measured where they are installed (`hpcdl.training.optional`), else a line says that they are not.
DeepSpeed sends float32 whatever the weights are: its losses are held to 1e-6. Ray starts processes of its own, so its
steps take no turns with the others', and its start counts Ray's own.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from inspect import getsource
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated
from benchmarks.peers.frameworks import horovod
from hpcdl.cluster import find_launcher
from hpcdl.comm.base import Communicator
from hpcdl.training import optional, six_tools
from hpcdl.training.program import ranks
from hpcdl.training.six_tools import on_ray, ways

WIDTH = 1024
OURS = ("hpcdl.ddp", "hpcdl.sharding", "Horovod's interface")  # over MPI
WAYS: dict[str, six_tools.Prepare] = {**six_tools.installed(), "Horovod's interface": horovod}
PROMISES = [
    ("hpcdl.ddp", "DDP", 1.0),
    ("hpcdl.sharding", "FSDP2", 1.8),
    ("hpcdl.sharding", "DeepSpeed ZeRO-3", 1.0),
    ("hpcdl.ddp", "Ray", 1.0),
]
TASK = six_tools.wide(WIDTH)
STEPS_OF_START = 3
CLOSE, CLOSE_IN_FLOAT32 = 1e-12, 1e-6


# -- in each of the two processes -------------------------------------------------------------------------------------


class Arm:
    """A training that continues where it stopped."""

    def __init__(self, way: str, mpi: Communicator, gloo: Communicator):
        self.comm = mpi if way in OURS else gloo
        self.prepared = WAYS[way](TASK.network(), self.comm)

    def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` steps, after one to warm up."""
        self.comm.barrier()
        return six_tools.steps(self.prepared, self.comm, count + 1, TASK)[1][1:]


def work(rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds per step of every way, of the slower rank."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm, TorchComm

    warnings.simplefilter("ignore")  # torch's own, of what it will change
    mpi, gloo = MPIComm(check=False), TorchComm()
    arms = {way: Arm(way, mpi, gloo) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in rotated(arms, number):
            times[way] += arms[way].steps(steps)
    return {way: [MPI.COMM_WORLD.allreduce(s, op=MPI.MAX) for s in values] for way, values in times.items()}


# -- in each of two processes that a launcher started -----------------------------------------------------------------


def begin(way: str) -> None:
    """A training from its first line; rank 0 prints when its first step had ended, and its memory."""
    with ranks() as (comm, _):
        losses, seconds = six_tools.steps(WAYS[way](TASK.network(), comm), comm, STEPS_OF_START, TASK)
        first = time.time() - sum(seconds[1:])
        comm.all_reduce(losses)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if comm.rank == 0:
            print(json.dumps({"first": first, "peak": peak, "losses": losses.tolist()}), flush=True)


# -- here -------------------------------------------------------------------------------------------------------------


def started(way: str) -> dict:
    """Seconds from the command to the end of the first step, bytes at most, losses. RuntimeError where it fails."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    mpiexec = [str(find_launcher().path), "-n", "2", sys.executable]
    command = [*(mpiexec if way in OURS else torchrun), "-m", "benchmarks.frameworks", way]
    begin = time.time()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=results.ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"{way} failed:\n{done.stdout}{done.stderr}")
    found = json.loads(lines[-1])
    return {"seconds": found["first"] - begin, "peak": found["peak"], "losses": found["losses"]}


def rays(rounds: int, count: int) -> list[dict]:
    """Start-up and step times for Ray, which starts the processes itself, and the seconds of `count` steps; nothing
    where it is not."""
    if optional.found("Ray") is None:
        return []
    runs = [six_tools.fit(TASK, count=count + 1) for _ in range(rounds)]
    return [{**run, "seconds": run["ready"], "steps": run["seconds"][1:]} for run in runs]


def starts(rounds: int) -> dict[str, list[dict]]:
    """Start each way `rounds` times, in turns; return the runs."""
    found: dict[str, list[dict]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in rotated(WAYS, number):
            found[way].append(started(way))
    return found


def same_losses(runs: dict[str, list[dict]]) -> dict[str, float]:
    """Largest differences from the losses of one process. Raises AssertionError where a tool trains otherwise."""
    most = max(len(run["losses"]) for each in runs.values() for run in each)
    right = torch.tensor(six_tools.serial(TASK, most), dtype=torch.float64)
    away = {way: max(_away(run["losses"], right) for run in each) for way, each in runs.items()}
    close = {way: CLOSE_IN_FLOAT32 if way in six_tools.DEEPSPEED else CLOSE for way in runs}
    wrong = {way: error for way, error in away.items() if not error <= close[way]}
    assert not wrong, f"losses differ from those of one process: {wrong}"
    return away


def _away(losses: list[float], right: torch.Tensor) -> float:
    return (torch.tensor(losses, dtype=torch.float64) - right[: len(losses)]).abs().max().item()


def rows(steps: dict[str, list[float]], runs: dict[str, list[dict]]) -> dict[str, dict]:
    """Return all results by way, for the table."""
    return {
        way: {
            "step": _summary(steps[way]),
            "start": _summary([run["seconds"] for run in runs[way]]),
            "peak": max(run.get("peak", 0) for run in runs[way]),
            "sent": sent(way),
            "lines": lines(way),
        }
        for way in runs
    }


def _summary(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values)}


def sent(way: str) -> int:
    """Bytes of a step on a simulated rank, 0 where the tool does not run on one."""
    return six_tools.sent(WAYS[way], TASK) if way in WAYS and way not in six_tools.DEEPSPEED else 0


def lines(way: str) -> int:
    """Of the function that prepares the model; of Ray's loop and what starts it."""
    functions: list = [on_ray.loop, on_ray.fit] if way == "Ray" else [WAYS[way]]
    functions += [ways.deepspeed] if way in six_tools.DEEPSPEED else []
    return sum(len(getsource(function).strip().splitlines()) for function in functions)


def promises(found: dict[str, dict]) -> list[dict]:
    """Of medians, how many steps ours takes, and how often it starts, in the time of one of the peer's."""
    kept = []
    for ours, peer, least in (row for row in PROMISES if row[1] in found):
        for what, asked in (("step", least), ("start", 1.0)):
            ratio = found[peer][what]["median"] / found[ours][what]["median"]
            kept.append({"what": f"{ours} / {peer}, {what}s per second", "promised": asked, "measured": ratio})
    return kept


def table(found: dict[str, dict]) -> Table:
    heads = ("way", "step min ms", "median", "start min s", "median", "peak MB", "sent MB", "lines")
    shown = Table(*heads, title="One training on 2 ranks")
    for way, row in found.items():
        step = [f"{1e3 * row['step'][key]:.1f}" for key in ("min", "median")]
        start = [f"{row['start'][key]:.1f}" for key in ("min", "median")]
        peak, bytes_ = f"{row['peak'] / 1e6:.0f}", f"{row['sent'] / 1e6:.1f}"
        shown.add_row(
            way, *step, *start, peak if row["peak"] else "–", bytes_ if row["sent"] else "–", str(row["lines"])
        )
    return shown


def main(
    quick: Annotated[bool, typer.Option(help="Two rounds of two steps, one start.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
    start: Annotated[int, typer.Option(min=1, help="How often each way is started.")] = 5,
) -> None:
    """Measure one training by all tools that are here, on two ranks."""
    out = results.file("frameworks", quick, out)
    versions = {name: optional.found(name) or f"not installed: {optional.advice(name)}" for name in optional.PACKAGES}
    console, machine = Console(), describe() | {"mpi": find_launcher().mpi, **versions}
    console.print_json(json.dumps(machine))
    steps = pair.run("benchmarks.frameworks", *((2, 2) if quick else (20, 4)))
    runs = starts(1 if quick else start)
    try:
        by_ray = rays(1 if quick else start, 4 if quick else 20)
    except Exception as error:  # what the others took minutes to measure is not lost when Ray's service does not start
        by_ray, machine["Ray"] = [], f"{machine['Ray']}, which did not train: {error}"
    if by_ray:
        runs["Ray"], steps["Ray"] = by_ray, [seconds for run in by_ray for seconds in run["steps"]]
    difference, found = same_losses(runs), rows(steps, runs)
    kept = promises(found)
    console.print(table(found))
    for promise in kept:
        console.print(f"{promise['what']}: {promise['measured']:.2f}, asked {promise['promised']:.2f}")
    away = ", ".join(f"{way} {error:.0e}" for way, error in difference.items())
    console.print(f"The losses are those of one process: {away}.")
    times = {"steps": steps, "starts": {way: [run["seconds"] for run in each] for way, each in runs.items()}}
    results.save({"machine": machine, "ways": found, **times, "difference": difference, "promises": kept}, out)
    console.print(f"All measurements: {out}")


if __name__ == "__main__":
    begin(sys.argv[1])
