"""What the benchmarks measured, on one page.

python -m benchmarks.harness.report    writes docs/benchmarks.md from benchmarks/results
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.results import RESULTS, ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Every figure is a ratio to a peer that was measured in the same run, interleaved, unless a unit is given. Run them with
`make bench`, or one with `hpcdl bench NAME`; all measurements are in `benchmarks/results`. This page
is written by `python -m benchmarks.harness.report`. Figures of a GPU name it, and were measured
on another machine than the others.

In a chart, a bar to the right of its mark reaches what was asked; ✗ and a striped bar do not. Curves are medians.
"""


def promises(found: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[str, dict]]:
    """Yield each promise in a result, with the setting it stands under."""
    if isinstance(found, dict):
        for row in found.get("promises") or ():
            yield " ".join(where), row
        for key, value in found.items():
            if key != "promises":
                yield from promises(value, (*where, key))


def machines(found: Any) -> Iterator[dict]:
    """Yield the machines that a result names: once, or with each of its parts."""
    if isinstance(found, dict):
        if "machine" in found:
            yield found["machine"]
        for value in found.values():
            yield from machines(value)


def sources() -> list[Path]:
    """Return the result files, in the order of the page."""
    return sorted(RESULTS.glob("*.json"))


def mark(path: Path) -> str:
    """Return the place of a benchmark's charts in the page; the site draws them when it is built."""
    return f"<!-- charts {path.stem} -->"


def section(path: Path) -> str:
    """Return the table of one benchmark, and the place of its charts."""
    found = json.loads(path.read_text(encoding="utf-8"))
    machine = next(machines(found))
    rows = [_row(where, row) for where, row in promises(found)]
    about = (
        f"{', '.join(machine[name] for name in ('gpu', 'processor') if name in machine)}, {machine['cores']} cores, "
        f"Python {machine['python']}, torch {machine['torch']}; "
        f"{machine['time'][:10]}, load {machine['load'][0]:g} at the start."
    )
    plots = [
        f"![{_about(plot)}](../benchmarks/results/{plot.name})" for plot in sorted(RESULTS.glob(f"{path.stem}*.png"))
    ]
    table = "\n".join(["| figure | asked | measured |", "| --- | --- | --- |", *rows])
    return "\n\n".join([f"## {path.stem}", about, *filter(None, [found.get("note")]), mark(path), table, *plots])


def _about(plot: Path) -> str:
    """Return the text of a picture `NAME-THREADS.png` for screen readers."""
    name, _, threads = plot.stem.rpartition("-")
    return f"{name} with {threads} thread{'s' * (threads != '1')}: times faster than torch, by layer and algorithm"


def _row(where: str, row: dict) -> str:
    what = f"{where}: {row['what']}" if where else row["what"]
    asked, measured = row.get("promised", row.get("bound")), row.get("measured", row.get("median"))
    return f"| {what} | {shown(asked)} | {shown(measured)} |"


def shown(value: Any) -> str:
    """Return a number with three digits, and a text as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def page() -> str:
    return "\n\n".join([HEAD.strip(), *map(section, sources())]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
