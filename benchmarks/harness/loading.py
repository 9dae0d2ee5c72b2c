"""Loaders side by side: images/s with nothing else to do, and whether a training that is the slower ever waits."""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness.turns import rotated
from benchmarks.peers import loading as peers
from hpcdl.data.loader import Loader, PlainLoader, Shards, write_shards

BATCH, SHARDS = 64, 4
SIZES = {"28x28": (1, 28, 28), "224x224": (3, 224, 224)}
ASKED = 2.0
LATE = 0.01  # of a step: what a wait has to last to be one


def race(size: str, count: int, turns: int) -> dict[str, list[float]]:
    """Images/s of each loader, epoch by epoch; the first, which starts workers and compares checksums, is left out."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        loaders = _loaders(_written(Path(name), SIZES[size], count), stack)
        rates: dict[str, list[float]] = {each: [] for each in loaders}
        for turn in range(turns + 1):
            for each in rotated(loaders, turn):
                rate = _images_per_second(loaders[each](), count)
                if turn:
                    rates[each].append(rate)
    return rates


def late_steps(count: int) -> float:
    """The share of steps that waited for 224x224 images though each computes three times as long as they take."""
    with tempfile.TemporaryDirectory() as name:
        folder = _written(Path(name), SIZES["224x224"], count)
        with Loader(Shards(folder / "ours"), BATCH, workers=1) as loader:
            for _ in loader:
                pass
            seconds = max(0.01, 3 * statistics.median(timed.load for timed in loader.timed))
            loader.timed.clear()
            for _ in loader:
                deadline = time.perf_counter() + seconds
                while time.perf_counter() < deadline:
                    torch.ones(100, 100) @ torch.ones(100, 100)
            waits = [timed.waited for timed in loader.timed]
    return sum(wait > LATE * seconds for wait in waits) / len(waits)


def promises(rates: dict[str, dict[str, list[float]]], late: float) -> list[dict]:
    """Return what was asked beside what was measured; a peer that is not installed has a row that says so."""
    rows = []
    for size, of in rates.items():
        middle = {name: statistics.median(each) for name, each in of.items()}
        for peer, asked in (("DataLoader", ASKED), ("DataLoader of batches", "shown"), ("webdataset", ASKED)):
            measured = middle["Loader"] / middle[peer] if peer in middle else "not installed"
            rows.append({"what": f"{size}, images/s beside {peer}", "promised": asked, "measured": measured})
    what = "share of steps that wait where the model is three times slower than its input"
    return [*rows, {"what": what, "promised": "0", "measured": late}]


def _written(folder: Path, shape: tuple[int, ...], count: int) -> Path:
    x = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    y = np.arange(count)
    write_shards(folder / "ours", ({"x": x[i], "y": y[i]} for i in range(count)), -(-count // SHARDS))
    peers.write(folder, x, y, SHARDS)
    return folder


def _loaders(folder: Path, stack: contextlib.ExitStack) -> dict[str, Callable[[], Iterable]]:
    """Epochs of each loader, by name."""
    shards = Shards(folder / "ours")
    ours = {kind: stack.enter_context(Loader(shards, BATCH, kind=kind, workers=2)) for kind in ("thread", "process")}
    plain = PlainLoader(shards, BATCH)
    found: dict[str, Callable[[], Iterable] | None] = {
        "Loader": lambda: _from_nothing(ours["thread"]),
        "Loader, processes": lambda: _from_nothing(ours["process"]),
        "PlainLoader": lambda: plain,
        "DataLoader": peers.data_loader(folder, BATCH),
        "DataLoader of batches": peers.data_loader_of_batches(folder, BATCH),
        "webdataset": peers.webdataset(folder, BATCH),
    }
    return {name: epochs for name, epochs in found.items() if epochs}


def _from_nothing(loader: Loader) -> Loader:
    """With nothing loaded ahead in the others' turns."""
    loader.load_state_dict(loader.state_dict())
    return loader


def _images_per_second(epoch: Iterable, count: int) -> float:
    begin, got = time.perf_counter(), 0
    for batch in epoch:
        got += len(batch["y"] if isinstance(batch, dict) else batch[1])
    assert got == count, f"an epoch of {count} images had {got}"
    return got / (time.perf_counter() - begin)
