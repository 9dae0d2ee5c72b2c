"""Drawing one move of a slider: our pictures beside matplotlib's two ways, in turns, the same draw function in each.

    python -m benchmarks pictures            # two minutes; prints a table, writes benchmarks/results/pictures.json
    python -m benchmarks pictures --quick    # seconds: to see that it works

One way makes a figure for each move, as `interact` with pyplot does; `cleared` keeps one figure, clears its axes and
draws all of it. All end with a PNG. What the page adds is timed in Chromium, by `pytest -s tests/browser`.
"""

import itertools
import statistics
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness import results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import seconds
from benchmarks.peers.drawing import Cleared, Redrawn
from hpcdl.widgets.pictures import PICTURES

MOVED = {  # picture: the control that is moved
    "secant": "h",
    "step_error": "h",
    "surface": "x",
    "descent_path": "lr",
    "learning_rates": "beta",
    "shards": "p",
    "perceptron_plane": "lr",
    "perceptron_lift": "t",
    "perceptron_mlp": "b1",
    "backprop": "x1",
    "value_graph": "step",
    "gradient_norms": "scale",
    "three_sets": "decay",
    "conv_gradient": "pixel",
}
WAYS = ("ours", "cleared", "anew")
WARM = 3  # moves before those that count


def states(explorable: Any, control: str) -> list[dict]:
    """Return the state of the explorable with the control at twenty of its stops, or all where there are fewer."""
    slider = explorable.controls[control]
    slider = getattr(slider, "bar", slider)  # of a stepper
    if options := getattr(slider, "options", None):
        values = [option[1] if isinstance(option, tuple) else option for option in options]
    else:
        low, high = slider.min, slider.max
        values = [low + (high - low) * step / 19 for step in range(20)]
        if isinstance(slider.value, int):
            values = sorted({round(value) for value in values})
        elif type(slider).__name__ == "FloatLogSlider":
            values = [slider.base**value for value in values]
    return [{**explorable.state, control: value} for value in values]


def measure(name: str, moves: int) -> dict:
    """Milliseconds of each move by way; the ways take turns at the same move."""
    explorable = PICTURES[name]()
    picture = explorable.picture
    ways: dict[str, Any] = dict(zip(WAYS, (picture, Cleared(picture), Redrawn(picture)), strict=True))
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    shown = states(explorable, MOVED[name])
    for state in itertools.islice(itertools.cycle(shown), WARM + moves):
        for way, drawn in ways.items():
            times[way].append(1e3 * seconds(partial(drawn.render, state)))
    return {way: values[-moves:] for way, values in times.items()}


def promise(name: str, row: dict) -> dict:
    """Return a row of the page of benchmarks."""
    middle = {way: statistics.median(row[way]) for way in WAYS}
    return {
        "what": f"{name}: times as fast as a figure cleared, and as one made anew",
        "promised": "-",
        "measured": f"{middle['cleared'] / middle['ours']:.1f}, {middle['anew'] / middle['ours']:.1f} "
        f"(ours {middle['ours']:.0f} ms)",
    }


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Pictures (default: all).")] = None,
    quick: Annotated[bool, typer.Option(help="Two pictures, five moves.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure, print, write."""
    machine, moves = describe(), 5 if quick else 20
    chosen = names or list(MOVED)[: 2 if quick else None]
    found = {name: measure(name, moves) for name in track(chosen, "Drawing")}
    table = Table("picture", *(f"{way}, ms: min / median" for way in WAYS))
    for name, row in found.items():
        table.add_row(name, *(f"{min(row[way]):.1f} / {statistics.median(row[way]):.1f}" for way in WAYS))
    Console().print(table)
    rows = [promise(name, row) for name, row in found.items()]
    rounded = {name: {way: [round(t, 2) for t in ts] for way, ts in row.items()} for name, row in found.items()}
    findings = {"machine": machine, "milliseconds": rounded, "promises": rows}
    results.save(findings, results.file("pictures", quick, out))
