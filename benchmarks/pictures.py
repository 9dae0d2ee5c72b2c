"""Drawing one move of a slider: our pictures beside matplotlib's two ways, in turns, the same draw function in each.

    python benchmarks/pictures.py            # two minutes; prints a table, writes benchmarks/results/pictures.json
    python benchmarks/pictures.py --quick    # seconds: to see that it works

`anew` makes a figure for each move, as `interact` with pyplot does; `cleared` keeps one figure, clears its axes and
draws all of it. All end with a PNG. What the page adds is timed in Chromium, by `pytest -s tests/browser`.
"""

import io
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Annotated

import matplotlib
import typer
from machine import describe
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hpcdl.widgets.kit.style import STYLE
from hpcdl.widgets.pictures import PICTURES

OUT = Path("benchmarks/results/pictures.json")
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
}
WAYS = ("ours", "cleared", "anew")
WARM = 3  # moves before those that count


class Cleared:
    """One figure of matplotlib's own: its axes are cleared, and all of it is drawn."""

    def __init__(self, picture):
        self.draw = picture.draw
        self.figure, self.axes = _like(picture.figure, picture.axes)

    def render(self, state: dict) -> None:
        with matplotlib.rc_context(STYLE):
            for axes in self.figure.axes:
                axes.clear()
            for text in list(self.figure.texts):
                text.remove()
            _write(self.figure, self.draw(state, self.axes))


class Anew:
    """A new figure each time."""

    def __init__(self, picture):
        self.draw, self.figure, self.axes = picture.draw, picture.figure, picture.axes

    def render(self, state: dict) -> None:
        with matplotlib.rc_context(STYLE):
            figure, axes = _like(self.figure, self.axes)
            _write(figure, self.draw(state, axes))


def _like(figure: Figure, axes):
    """A new figure of that size with axes of those names, places and projections."""
    new = Figure(figsize=figure.get_size_inches())
    FigureCanvasAgg(new)
    add = lambda old: new.add_axes(old.get_position().bounds, projection=old.name)  # noqa: E731 - used twice, below
    return new, {name: add(old) for name, old in axes.items()} if isinstance(axes, dict) else add(axes)


def _write(figure: Figure, sentence: str | None) -> None:
    figure.text(0.015, 0.06, str(sentence or ""), va="center", parse_math=False)
    figure.savefig(io.BytesIO(), format="png")


def states(explorable, control: str) -> list[dict]:
    """The state of the explorable with the control at twenty of its stops, or all where there are fewer."""
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
    ways = dict(zip(WAYS, (picture, Cleared(picture), Anew(picture)), strict=True))
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    shown = states(explorable, MOVED[name])
    for state in itertools.islice(itertools.cycle(shown), WARM + moves):
        for way, drawn in ways.items():
            begin = time.perf_counter()
            drawn.render(state)
            times[way].append(1e3 * (time.perf_counter() - begin))
    return {way: values[-moves:] for way, values in times.items()}


def promise(name: str, row: dict) -> dict:
    """A row of the page of benchmarks."""
    middle = {way: statistics.median(row[way]) for way in WAYS}
    return {
        "what": f"{name}: times as fast as a figure cleared, and as one made anew",
        "promised": "-",
        "measured": f"{middle['cleared'] / middle['ours']:.1f}, {middle['anew'] / middle['ours']:.1f} "
        f"(ours {middle['ours']:.0f} ms)",
    }


def main(names: Annotated[list[str] | None, typer.Argument()] = None, quick: bool = False, out: Path = OUT) -> None:
    """Measure, print, write."""
    machine, moves = describe(), 5 if quick else 20
    chosen = names or list(MOVED)[: 2 if quick else None]
    found = {name: measure(name, moves) for name in track(chosen, "Drawing")}
    table = Table("picture", *(f"{way}, ms: min / median" for way in WAYS))
    for name, row in found.items():
        table.add_row(name, *(f"{min(row[way]):.1f} / {statistics.median(row[way]):.1f}" for way in WAYS))
    Console().print(table)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [promise(name, row) for name, row in found.items()]
    rounded = {name: {way: [round(t, 2) for t in ts] for way, ts in row.items()} for name, row in found.items()}
    out.write_text(json.dumps({"machine": machine, "milliseconds": rounded, "promises": rows}, indent=1))


if __name__ == "__main__":
    typer.run(main)
