"""How long `hpcdl.cost.pipeline` takes to play a schedule of 256 stages and 1,024 microbatches.

    python -m benchmarks schedules            # a minute; writes benchmarks/results/schedules.json
    python -m benchmarks schedules --quick    # seconds: 32 stages, 128 microbatches, not to be quoted

The time is this process's own, of the whole: the orders are made, checked and played. The least of three.
"""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import results
from benchmarks.harness.machine import describe
from hpcdl.cost.pipeline import play
from hpcdl.parallel.schedules import SCHEDULES

PROMISED = 10.0  # seconds


def measure(p: int, m: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of this process to make and play each schedule with F = B = W = 1."""
    found: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    for _ in range(repeats):
        for name, schedule in SCHEDULES.items():
            begin = time.process_time()
            part = 1 / schedule.chunks
            play(schedule.orders(p, m), part, part, part, parts=schedule.parts(p, schedule.chunks))
            found[name].append(time.process_time() - begin)
    return found


def main(
    quick: Annotated[bool, typer.Option(help="32 stages, 128 microbatches, once.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Time how long it takes to simulate a large pipeline."""
    machine, size = describe(), (32, 128, 1) if quick else (256, 1024, 3)
    found = measure(*size)
    stages = f"{size[0]} stages, {size[1]:,} microbatches"
    shown = Table("schedule", "s", title=f"To play {stages}, seconds")
    for name, taken in found.items():
        shown.add_row(name, f"{min(taken):.2f}")
    Console().print(shown)
    rows = [
        {"what": f"{name}, {stages}, seconds, less than", "promised": PROMISED, "measured": min(taken)}
        for name, taken in found.items()
    ]
    results.save({"machine": machine, "seconds": found, "promises": rows}, results.file("schedules", quick, out))
