"""Each solved lab, run top to bottom as tests do: its seconds, and the memory of its kernel and engines together.

    python -m benchmarks labs                        # every lab; prints a table, writes benchmarks/results/labs.json
    python -m benchmarks labs 05 ddp                 # some, by number or slug

Memory is the proportional set size of all processes that the lab started, the highest of a sample each half second:
pages that processes share are counted once.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import nbclient
import psutil
import typer
from rich.console import Console
from rich.table import Table

from autograder.authors import build
from benchmarks.harness import results
from benchmarks.harness.machine import describe

LIMITS = {"seconds": 60, "megabytes": 700}
SAMPLE_SECONDS = 0.5
QUICK = "01"


def memory_of_children() -> float:
    """Return the megabytes that this process's descendants use together."""
    total = 0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it may have ended
            total += child.memory_full_info().pss
    return total / 1e6


class Highest:
    """Samples `measure` in a thread while the `with` block runs; `value` is the highest."""

    def __init__(self, measure: Callable[[], float]):
        self.measure, self.value, self.over = measure, 0.0, threading.Event()
        self.thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self.over.wait(SAMPLE_SECONDS):
            self.value = max(self.value, self.measure())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def measure(slug: str) -> dict:
    """Run the solved lab in a folder of its own; its seconds and megabytes."""
    notebook = build.solved(slug)
    with tempfile.TemporaryDirectory() as folder, Highest(memory_of_children) as memory:
        client = nbclient.NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        begin = time.perf_counter()
        client.execute(env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
        seconds = time.perf_counter() - begin
    return {"lab": slug, "seconds": round(seconds, 1), "megabytes": round(memory.value)}


def chosen(names: list[str]) -> list[str]:
    """Return the slugs of the labs that `names` (numbers or slugs) stand for; all without names."""
    numbers = {path.name[:2]: build.slug_of(path) for path in build.sources()}
    slugs = [numbers.get(name.zfill(2), name) for name in names]
    if unknown := set(slugs) - set(numbers.values()):
        raise typer.BadParameter(f"no lab {', '.join(unknown)}; the labs are {', '.join(numbers.values())}")
    return slugs or list(numbers.values())


def promise(row: dict) -> dict:
    """Return a row of the page of benchmarks."""
    return {
        "what": f"{row['lab']}, solved, top to bottom",
        "promised": f"< {LIMITS['seconds']} s",
        "measured": f"{row['seconds']} s, {row['megabytes']} MB",
    }


def main(
    labs: Annotated[list[str] | None, typer.Argument(help="Numbers or slugs (default: all).")] = None,
    quick: Annotated[bool, typer.Option(help=f"Lab {QUICK} alone.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure, print, write."""
    table = Table("lab", f"seconds (< {LIMITS['seconds']})", f"MB (< {LIMITS['megabytes']})")
    machine, rows = describe(), []
    for slug in chosen(labs or ([QUICK] if quick else [])):
        rows.append(measure(slug))
        table.add_row(*map(str, rows[-1].values()))
    Console().print(table)
    findings = {"machine": machine, "labs": rows, "promises": list(map(promise, rows))}
    results.save(findings, results.file("labs", quick, out))
