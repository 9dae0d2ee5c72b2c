"""The trainer's steps on this processor beside `hpcdl train --machine here`.

    python -m benchmarks predictions            # minutes; prints a table, writes benchmarks/results/predictions.json
    python -m benchmarks predictions --quick    # to see that it works, not to be quoted

mlp, lenet and gpt run on one rank, and on two ranks on meshes that fit them. The constants are measured first, in the
same processes. A time is the median of the slower rank's steps; `processor` is the median of rank 0's processor time,
which other programs disturb less, but which counts waiting as well.
"""

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.machine import describe
from hpcdl.training import Configuration, Trainer

WITHIN = 0.15  # of the measured seconds
MESHES: dict[str, dict[str, Any]] = {
    "data=1": {},
    "data=2": {"mesh": (2, 1, 1, 1)},
    "data=2, sharding 3": {"mesh": (2, 1, 1, 1), "sharding": 3},
    "pipeline=2": {"mesh": (1, 2, 1, 1), "microbatches": 4},
    "tensor=2": {"mesh": (1, 1, 2, 1)},
    "sequence=2": {"mesh": (1, 1, 1, 2)},
}
MODELS = (("mlp", "tiny"), ("mlp", "small"), ("lenet", "lenet5"), ("gpt", "tiny"), ("gpt", "small"))


def configurations(ranks: int) -> dict[str, Configuration]:
    """Return what is run on so many ranks, by name."""
    found = {}
    for (model, size), (name, options) in ((model, mesh) for model in MODELS for mesh in MESHES.items()):
        configuration = Configuration(model=model, size=size, batch=32, steps=1, **options)
        if configuration.ranks == ranks and (model == "gpt" or name != "sequence=2"):
            found[f"{model} {size}, {name}"] = configuration
    return found


def work(steps: int) -> dict:
    """Return predicted and measured seconds of each configuration, on all of these ranks."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm
    from hpcdl.training.hybrid.rates import measured

    comm, found = MPIComm(check=False), {}
    here = measured(comm)
    for name, configuration in configurations(comm.size).items():
        seconds, processor = times(Trainer(comm, configuration.changed(steps=steps)), steps)
        slower = [MPI.COMM_WORLD.allreduce(value, op=MPI.MAX) for value in seconds]
        predicted = here.step_seconds(configuration) if comm.rank == 0 else 0.0
        comm.barrier()
        found[name] = {
            "predicted": predicted,
            "measured": statistics.median(slower[2:]),
            "processor": statistics.median(processor[2:]),
        }
    return {"here": here._asdict(), "rows": found}


def times(trainer: Trainer, steps: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each step, and this process's processor time in it."""
    seconds, marks = [], [time.process_time()]

    def report(record: dict) -> None:
        seconds.append(record["seconds"])
        marks.append(time.process_time())

    trainer.train(report)
    return seconds, [after - before for before, after in pairwise(marks)]


def main(
    quick: Annotated[bool, typer.Option(help="Few steps.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure how well steps on this processor are predicted."""
    out, console = results.file("predictions", quick, out), Console()
    found = {str(ranks): pair.run("benchmarks.predictions", 12 if quick else 60, ranks=ranks) for ranks in (1, 2)}
    rows = found["1"]["rows"] | found["2"]["rows"]
    table = Table("run", "predicted ms", "measured ms", "processor ms", "predicted / measured")
    for name, row in rows.items():
        shown = [f"{1e3 * row[column]:.2f}" for column in ("predicted", "measured", "processor")]
        table.add_row(name, *shown, f"{row['predicted'] / row['measured']:.2f}")
    console.print(table)
    kept = [
        {"what": f"{name}: 1 - |predicted / measured - 1|", "promised": 1 - WITHIN, "measured": 1 - error}
        for name, error in ((name, abs(row["predicted"] / row["measured"] - 1)) for name, row in rows.items())
    ]
    results.save({"machine": describe(), **found, "promises": kept}, out)
    console.print(f"All measurements: {out}")
