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
is written by `python -m benchmarks.harness.report`. GPU: not measured, since no card was there.
"""


def promises(found: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[str, dict]]:
    """Each promise in a result, with the setting it stands under."""
    if isinstance(found, dict):
        for row in found.get("promises") or ():
            yield " ".join(where), row
        for key, value in found.items():
            if key != "promises":
                yield from promises(value, (*where, key))


def machines(found: Any) -> Iterator[dict]:
    """The machines that a result names: once, or with each of its parts."""
    if isinstance(found, dict):
        if "machine" in found:
            yield found["machine"]
        for value in found.values():
            yield from machines(value)


def section(path: Path) -> str:
    """The table of one benchmark."""
    found = json.loads(path.read_text(encoding="utf-8"))
    machine = next(machines(found))
    rows = [_row(where, row) for where, row in promises(found)]
    about = (
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, torch {machine['torch']}; "
        f"{machine['time'][:10]}, load {machine['load'][0]:g} at the start."
    )
    plots = [f"![{path.stem}](../benchmarks/results/{plot.name})" for plot in sorted(RESULTS.glob(f"{path.stem}*.png"))]
    table = "\n".join(["| figure | asked | measured |", "| --- | --- | --- |", *rows])
    return "\n\n".join([f"## {path.stem}", about, *filter(None, [found.get("note")]), table, *plots])


def _row(where: str, row: dict) -> str:
    what = f"{where}: {row['what']}" if where else row["what"]
    asked, measured = row.get("promised", row.get("bound")), row.get("measured", row.get("median"))
    return f"| {what} | {_number(asked)} | {_number(measured)} |"


def _number(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def page() -> str:
    return "\n\n".join([HEAD.strip(), *map(section, sorted(RESULTS.glob("*.json")))]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
