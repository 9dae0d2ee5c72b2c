"""What it costs that answers may not call the library: the checks of each lab's reference, guarded and not.

    python -m benchmarks guard            # minutes; writes benchmarks/results/guard.json
    python -m benchmarks guard --quick    # two labs: to see that it works, not to be quoted

In a notebook's session, a process for each lab; the guarded and the free one take turns, each exercise after another.
Seconds are of the processor, so that a busy machine counts for neither.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from autograder import exercises
from autograder.authoring import Exercise
from autograder.authors import build
from autograder.grading import run, seeds
from autograder.inside import magics, source
from autograder.sessions.local import LocalSession
from benchmarks.harness import results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated

PROMISED = 1.05  # times the seconds without a guard
QUICK = ("calculus", "gradient_descent")
SECRET = b"benchmark"


class Free(LocalSession):
    """All calls are allowed."""

    def forbid(self, patterns: tuple[str, ...] = (), opened: tuple[str, ...] | None = None) -> None:
        super().forbid((), None)


KINDS = {"guarded": LocalSession, "free": Free}


def answered(cells: list[tuple[str, str]], exercise: Exercise) -> dict:
    """Return the names that the reference's answer to an exercise needs, from the lab's cells."""
    namespace: dict = {}
    for label, statement in source.needed(cells, list(exercise.functions))[0]:
        exec(compile(statement, label, "exec"), namespace)
    return namespace


def worked(call: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measure(slug: str, turns: int) -> dict:
    """Processor seconds of all checks of a lab, by kind of session: the median and the least of `turns`."""
    torch.set_num_threads(1)
    chosen = list(exercises.load(slug).exercises.values())
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    sessions = {kind: [make(answered(cells, exercise)) for exercise in chosen] for kind, make in KINDS.items()}

    def check(kind: str) -> None:
        for exercise, session in zip(chosen, sessions[kind], strict=True):
            run.run_exercise(exercise, session, seeds.seeds(SECRET, "reference"))
            session.forbid()  # the doors are opened for the next one, as a notebook does

    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(turns + 1):
        for kind in rotated(KINDS, turn):
            taken = worked(partial(check, kind))
            if turn:  # the first turn imports
                times[kind].append(taken)
    return {
        "lab": slug,
        **{f"{kind} {f.__name__}": round(f(times[kind]), 4) for kind in KINDS for f in (statistics.median, min)},
        "ratio": round(statistics.median(a / b for a, b in zip(times["guarded"], times["free"], strict=True)), 3),
    }


def promise(row: dict) -> dict:
    """Return a row of the page of benchmarks."""
    return {
        "what": f"{row['lab']}: all checks of the reference, library closed / open",
        "promised": f"<= {PROMISED}x",
        "measured": f"{row['ratio']}x (of minima {row['guarded min'] / row['free min']:.3f}x)",
    }


def together(rows: list[dict]) -> dict:
    """Return the row of all labs: the ratio of their medians' sums, and of their minima's."""
    total = {key: sum(row[key] for row in rows) for key in rows[0] if key.endswith(("median", "min"))}
    return {"lab": "all labs", **total, "ratio": round(total["guarded median"] / total["free median"], 3)}


def main(
    quick: Annotated[bool, typer.Option(help=f"{' and '.join(QUICK)} alone, three turns.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure, print, write."""
    machine, rows = describe(), []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for slug in QUICK if quick else exercises.LABS:
            rows.append(pool.apply(measure, (slug, 3 if quick else 9)))
            print(rows[-1], flush=True)
    table = Table(*rows[0])
    for row in [*rows, together(rows)]:
        table.add_row(*map(str, row.values()))
    Console().print(table)
    findings = {"machine": machine, "labs": rows, "promises": [*map(promise, rows), promise(together(rows))]}
    results.save(findings, results.file("guard", quick, out))
