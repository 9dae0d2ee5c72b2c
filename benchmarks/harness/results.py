"""Where results are kept: figures to be quoted in benchmarks/results, which is committed, quick runs in artifacts."""

import json
from pathlib import Path

from hpcdl.files import write_whole

ROOT = Path(__file__).resolve().parents[2]
RESULTS, QUICK = ROOT / "benchmarks" / "results", ROOT / "artifacts" / "benchmarks"


def file(name: str, quick: bool, out: Path | None) -> Path:
    """The benchmark's JSON file: `out` where one is given, else where its kind of run keeps it."""
    return out or (QUICK if quick else RESULTS) / f"{name}.json"


def save(findings: dict, out: Path) -> None:
    """Write what was measured."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, json.dumps(findings, indent=1) + "\n")
