"""Draw what the benchmarks measured, from `benchmarks/results`.

Each benchmark has bars against what was asked, and curves over the message size if it measured some.

`write` puts SVGs for light and for dark pages into a folder and returns the HTML that replaces each mark in
`benchmarks.md`. The table below a chart has every number.
"""

import functools
import io
import json
import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.harness import report

FOLDER = "_charts"  # of the site
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
AT_MOST = re.compile(r"at most|less than")
WIDTH = 4.8  # inches: 460 pixels, which a telephone shows nearly in full size
LINE, TEXT, ROW = 80, 0.14, 0.28  # letters in a line; inches of a line and of a bar with its gap
# Each chart is drawn in the light page's colours; each of them has one for dark pages.
DARK = {
    **{"#1f2328": "#d9dce1", "#0072b2": "#56b4e9", "#c2410c": "#f08a4b", "#007a5a": "#3fc79a", "#8a5a00": "#e6b450"},
    **{"#9c3f7d": "#e39ac7", "#333333": "#d9dce1", "#2a7fb8": "#8fc7f0", "#6b7280": "#9aa3b0", "#5b3fb0": "#b7a3f5"},
}
TEXT_COLOUR, *CYCLE = DARK
KEPT, MISSED = CYCLE[:2]
COLOUR = re.compile("|".join(DARK))
MARKERS = "os^Dv*Px<"


@dataclass(frozen=True)
class Bar:
    """A figure against what was asked: `times` as good, None if nothing was asked; `said` has both numbers."""

    what: str
    times: float | None
    said: str


def write(folder: Path) -> dict[str, str]:
    """Write all charts into `folder`; return their HTML, by the mark in `benchmarks.md` that it replaces."""
    return {report.mark(path): "".join(figures(path, folder)) for path in report.sources()}


def figures(path: Path, folder: Path) -> Iterator[str]:
    """Write the charts of one result file into `folder`; yield the HTML of each."""
    folder.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text(encoding="utf-8"))
    if asked := [bar for bar in bars(found) if bar.times is not None]:
        yield _figure(folder, path.stem, about_bars(path.stem, asked), functools.partial(draw_bars, asked))
    for number, (where, series) in enumerate(sorted(curves(found).items())):
        name, title = f"{path.stem}-{number}", f"{path.stem}: {where}"
        yield _figure(folder, name, about_curves(title, series), functools.partial(draw_curves, series, title))


# ---------------------------------------------------------------------------------------------- what is drawn


def bars(found: Any) -> list[Bar]:
    """Return a bar for each promise of a result, in the order of its table."""
    return [_bar(f"{where}: {row['what']}" if where else row["what"], row) for where, row in report.promises(found)]


def _bar(what: str, row: dict) -> Bar:
    asked, measured = row.get("promised", row.get("bound")), row.get("measured", row.get("median"))
    limit, value = _number(asked), _number(measured)
    said = f"{report.shown(measured)}, asked {report.shown(asked)}"
    if limit is None or value is None:
        return Bar(what, None, said)
    lower_is_better = _lower_is_better(row, asked, limit, value)
    top, bottom = (limit, value) if lower_is_better else (value, limit)
    return Bar(what, top / bottom if bottom > 0 else math.inf, said)


def _lower_is_better(row: dict, asked: Any, limit: float, value: float) -> bool:
    """Whether the figure is a limit: by its sign, its words, or by whether it was kept."""
    if isinstance(asked, str):
        return asked.lstrip().startswith("<")
    return bool(AT_MOST.search(row["what"])) or ("kept" in row and row["kept"] == (value < limit))


def _number(value: Any) -> float | None:
    """Return a number, or the first in a text; None for another text, and for an interval."""
    found = NUMBER.search(value) if isinstance(value, str) and " to " not in value else None  # no interval
    return float(found[0]) if found else None if isinstance(value, str) else float(value)


def curves(found: Any) -> dict[str, dict[str, dict[int, float]]]:
    """Return seconds by the number of bytes, by the name of the curve, by the title of the chart."""
    charts: dict[str, dict[str, dict[int, float]]] = {}
    for where, sizes in _by_size(found.get("seconds", {}), ()):
        charts.setdefault(", ".join(where[:-1]), {})[where[-1]] = sizes
    return charts


def _by_size(found: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[int, float]]]:
    if not isinstance(found, dict):
        return
    if found and all(key.isdigit() and isinstance(value, dict) and "median" in value for key, value in found.items()):
        yield where, {int(size): value["median"] for size, value in found.items()}
        return
    for key, value in found.items():
        yield from _by_size(value, (*where, key))


# ---------------------------------------------------------------------------------------------- in words


def about_bars(name: str, shown: list[Bar]) -> str:
    """Return the text for screen readers."""
    kept = sum(bar.times >= 1 for bar in shown)
    least = min(shown, key=lambda bar: bar.times)
    return f"{name}: {kept} of {len(shown)} figures reach what was asked. The lowest is {least.what}: {least.said}."


def about_curves(title: str, series: dict[str, dict[int, float]]) -> str:
    """Return the text for screen readers: who is fastest for the largest message."""
    size = max(max(sizes) for sizes in series.values())
    ends = sorted((sizes[size], name) for name, sizes in series.items() if size in sizes)
    order = ", ".join(f"{name} {seconds * 1e3:.3g} ms" for seconds, name in ends)
    return f"Median time by message size, {title}. For {size:,} bytes, the fastest first: {order}."


# ---------------------------------------------------------------------------------------------- pictures


def draw_bars(shown: list[Bar]):
    """Draw how many times as good as asked each figure is, on a logarithmic axis; the line is what was asked."""
    finite = [bar.times for bar in shown if math.isfinite(bar.times)] or [1.0]
    low, high = min(0.8, *finite) / 1.15, max(1.25, *finite) * 1.15
    words = [textwrap.wrap(f"{'' if bar.times >= 1 else '✗ '}{bar.what}: {bar.said}", LINE) for bar in shown]
    total = sum(ROW + TEXT * len(lines) for lines in words)
    figure, axes = _axes(total + 0.6)
    place = 0.0  # inches from the top
    for bar, lines in zip(shown, words, strict=True):
        kept, end = bar.times >= 1, min(bar.times, high)
        look = {"color": KEPT if kept else MISSED, "hatch": "" if kept else "////"}
        place += TEXT * len(lines)
        axes.text(
            0, place, "\n".join(lines), transform=axes.get_yaxis_transform(), fontsize=8, va="bottom", in_layout=False
        )
        axes.barh(place + 0.09, end - 1, left=1, height=0.14, edgecolor=TEXT_COLOUR, lw=0.5, **look)
        axes.plot([1, 1], [place + 0.02, place + 0.18], color=TEXT_COLOUR, lw=2)
        place += ROW
    axes.set(xscale="log", xlim=(low, high), ylim=(total, -0.05), yticks=[])
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axes.minorticks_off()
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("times as good as asked", fontsize=9)
    return figure


def draw_curves(series: dict[str, dict[int, float]], title: str):
    """Draw seconds over bytes, both on logarithmic axes, a line and a marker for each name."""
    figure, axes = _axes(3.6 + 0.17 * math.ceil(len(series) / 2))
    for (name, sizes), colour, marker in zip(series.items(), CYCLE, MARKERS, strict=False):
        axes.plot(list(sizes), [s * 1e3 for s in sizes.values()], color=colour, marker=marker, ms=4, lw=1.3, label=name)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("bytes", fontsize=9)
    axes.set_ylabel("ms (median)", fontsize=9)
    axes.set_title(title, fontsize=10, loc="left")
    figure.legend(loc="outside lower left", ncols=2, fontsize=8, frameon=False)
    return figure


def _axes(height: float):
    import matplotlib.pyplot as plt

    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    plt.rcParams.update(plt.rcParamsDefault)
    plt.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "hpcdl", "font.size": 9, **dict.fromkeys(parts, TEXT_COLOUR)}
    )
    plt.rcParams["font.family"] = "sans-serif"
    figure, axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _figure(folder: Path, name: str, alt: str, draw) -> str:
    """Write a chart for both themes; return its HTML."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    drawn, figure = io.StringIO(), draw()
    figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    width, height = (round(inches * 96) for inches in figure.get_size_inches())
    plt.close(figure)
    svg = {"light": drawn.getvalue(), "dark": COLOUR.sub(lambda found: DARK[found[0]], drawn.getvalue())}
    for theme, text in svg.items():
        (folder / f"{name}-{theme}.svg").write_text(text, encoding="utf-8")
    images = "".join(
        f'<img class="only-{theme}" src="{FOLDER}/{name}-{theme}.svg" alt="{escape(alt, quote=True)}" '
        f'width="{width}" height="{height}" loading="lazy">'
        for theme in svg
    )
    return f'<figure class="chart">{images}</figure>\n'
