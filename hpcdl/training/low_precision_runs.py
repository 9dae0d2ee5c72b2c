"""LeNet trained on the digits in many fixed-point formats: stored runs and new runs.

    python -m hpcdl.training.low_precision_runs        # repeats the runs in low_precision_runs.json, in 6 minutes

A run is a list of `Epoch`s. Stored are the runs for every word and fractional length in `LENGTHS`, rounding to nearest
and at random, and for float32, each with the seeds in `SEEDS`.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hpcdl.data import digits
from hpcdl.nn.low_precision import MODES, NETWORKS, Epoch, Precision, fresh, train
from hpcdl.numerics.rounding import Fixed

FILE = Path(__file__).with_suffix(".json")
LENGTHS = {8: range(3, 7), 10: range(4, 9), 12: range(4, 11), 14: range(4, 13), 16: range(4, 15)}  # WL: every FL
EPOCHS, RATE, BATCH, SEEDS = 10, 0.1, 32, (0,)
FLOAT32 = "float32"


def name_of(wl: int, fl: int, mode: str) -> str:
    """Return a setting's name in the file; float32 has no lengths."""
    return FLOAT32 if mode == FLOAT32 else f"{wl} {fl} {mode}"


def make(wl: int, fl: int, mode: str, seed: int) -> Iterator[Epoch]:
    """Train LeNet with all tensors in the format of `wl` bits, `fl` of them fractional; yield after each epoch."""
    precision = Precision() if mode == FLOAT32 else Precision.all_in(Fixed(wl - fl, fl), mode)
    network = fresh(NETWORKS["lenet"], seed)
    yield from train(network, digits(28), precision, lr=RATE, epochs=EPOCHS, batch=BATCH, seed=seed)


@cache
def made_before() -> dict[str, list[list[Epoch]]]:
    """Return the stored runs by setting, one for each seed."""
    table = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: [[Epoch(*row) for row in run] for run in runs] for name, runs in table.items()}


def settings() -> Iterator[tuple[int, int, str]]:
    """Return word length, fractional length and mode of every setting in the file."""
    yield 32, 0, FLOAT32
    yield from ((wl, fl, mode) for wl, lengths in LENGTHS.items() for fl in lengths for mode in MODES)


def main() -> None:
    """Repeat all runs, and write the file."""
    table = {}
    for wl, fl, mode in settings():
        runs = [[short(epoch) for epoch in make(wl, fl, mode, seed)] for seed in SEEDS]
        table[name_of(wl, fl, mode)] = runs
        print(name_of(wl, fl, mode), [run[-1][2] for run in runs], flush=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(runs)}" for name, runs in table.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def short(epoch: Epoch) -> list:
    """Return an epoch with four digits of each number, as in the file."""
    return [epoch.number, *(float(f"{x:.4g}") for x in epoch[1:])]


if __name__ == "__main__":
    main()
