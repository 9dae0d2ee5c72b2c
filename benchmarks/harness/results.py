"""Where results are kept: summaries in benchmarks/results, which git has; raw samples in artifacts."""

import json
import statistics
from pathlib import Path
from typing import Any

from hpcdl.files import write_whole

ROOT = Path(__file__).resolve().parents[2]
RESULTS, QUICK = ROOT / "benchmarks" / "results", ROOT / "artifacts" / "benchmarks"
SAMPLES = 5  # a list of at least so many numbers is a sample
WIDTH = 120  # letters of a line that holds several rows


def file(name: str, quick: bool, out: Path | None) -> Path:
    """Return the benchmark's JSON file: `out` if given, otherwise the one of this kind of run."""
    return out or (QUICK if quick else RESULTS) / f"{name}.json"


def save(findings: dict, out: Path) -> None:
    """Write a summary of `findings` to `out`, and all samples to artifacts/benchmarks/raw, which git ignores."""
    raw = QUICK / "raw" / out.name
    for path, text in {raw: json.dumps(findings), out: written(summary(findings))}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text + "\n")


def summary(found: Any) -> Any:
    """Return `found` with each sample replaced by its size, minimum, quartiles and median."""
    if isinstance(found, dict):
        return {key: summary(value) for key, value in found.items()}
    if not isinstance(found, list):
        return found
    if len(found) < SAMPLES or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in found):
        return [summary(value) for value in found]
    lower, median, upper = (float(f"{x:.4g}") for x in statistics.quantiles(found, n=4, method="inclusive"))
    return {"n": len(found), "min": float(f"{min(found):.4g}"), "lower": lower, "median": median, "upper": upper}


def written(found: Any, indent: str = "") -> str:
    """Return `found` as JSON in which whatever fits on a line has one line, and so has each row."""
    line = json.dumps(found, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(found, dict | list) or is_row(found):
        return line
    inner = indent + " "
    if isinstance(found, dict):
        parts = [f"{json.dumps(str(key), ensure_ascii=False)}: {written(value, inner)}" for key, value in found.items()]
    else:
        parts = [written(value, inner) for value in found]
    left, right = "{}" if isinstance(found, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{right}"


def is_row(found: dict | list) -> bool:
    """Return whether it holds no row itself: only numbers, texts and lists of these."""
    values = found.values() if isinstance(found, dict) else found
    return not any(isinstance(value, dict) or (isinstance(value, list) and not is_row(value)) for value in values)
