"""Records of each step: a line of JSON per rank, and on rank 0 a readable line."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hpcdl.files import write_whole


@contextmanager
def log(folder: Path | None, rank: int, ranks: int, done: int, name: str = "rank") -> Iterator[IO[str] | None]:
    """Open the file `rank-R.jsonl` (or another `name`) in `folder` for appending; return None without a folder.

    Lines for steps after `done`, which a killed run has written and a restart repeats, are removed, even if the number
    of ranks changed.
    """
    if folder is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{name}-*.jsonl"):
        number = path.stem.removeprefix(f"{name}-")
        if number.isdecimal() and int(number) % ranks == rank:
            kept = [line for line in path.read_text("utf-8", "replace").splitlines() if _step(line) <= done]
            write_whole(path, "".join(f"{line}\n" for line in kept))
    with (folder / f"{name}-{rank}.jsonl").open("a", encoding="utf-8") as file:
        yield file


def write(file: IO[str] | None, record: dict[str, Any]) -> None:
    """Append a record and flush it; null stands for a number that is not finite."""
    if file is not None:
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        file.write(json.dumps(finite) + "\n")
        file.flush()


def sentence(record: dict[str, Any]) -> str:
    """Format a step as a line: step 3: loss 2.301, gradient norm 0.52, 1,203 images/s, MFU 31 %, 3 % waiting."""
    parts = [f"step {record['step']}: loss {record['loss']:.4f}", f"gradient norm {record['gradient_norm']:.3g}"]
    if record.get("skipped"):
        parts.append(f"skipped: gradients overflowed at a loss scale of {record['loss_scale']:g}")
    name, speed = next((name, value) for name, value in record.items() if name.endswith("_per_second"))
    if speed is not None:
        parts.append(f"{speed:,.0f} {name.removesuffix('_per_second')}/s")
        parts += [f"MFU {record['mfu']:.2g}"] if record["mfu"] is not None else []
        parts.append(f"{100 * record['waited'] / record['seconds']:.0f} % waiting")
    parts += [f"peak {record['peak_bytes'] / 2**20:.2f} MB"] if "peak_bytes" in record else []
    return ", ".join(parts)


def _step(line: str) -> float:
    """Return the step of a line; infinite for half a line that a killed run left."""
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return math.inf
