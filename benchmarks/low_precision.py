"""Training in 16-bit fixed point, to nearest and stochastically, beside float32: accuracy on digits over five seeds.

    python -m benchmarks low_precision               # minutes; LeNet, ten epochs
    python -m benchmarks low_precision --quick       # seconds: to see that it works, not to be quoted

A seed decides the initial weights, the order of the images and the random bits, and is the same for the three
arithmetics. Accuracies are of held-out images after the last epoch.
"""

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import results
from benchmarks.harness.machine import describe
from hpcdl.data import Split, digits
from hpcdl.nn.low_precision import NETWORKS, Precision, fresh, train
from hpcdl.numerics.rounding import Fixed

WORD = Fixed(8, 8)
ARITHMETICS = {
    "float32": Precision(),
    "nearest": Precision.all_in(WORD, "nearest"),
    "stochastic": Precision.all_in(WORD, "stochastic"),
}

Accuracies = dict[str, list[float]]  # arithmetic -> percent, by seed


def measure(data: Split, network: str, seeds: int, epochs: int, lr: float, momentum: float) -> Accuracies:
    """Held-out accuracy of each arithmetic after training, for each seed."""
    found: Accuracies = {name: [] for name in ARITHMETICS}
    for seed in range(seeds):
        for name, precision in ARITHMETICS.items():
            model = fresh(NETWORKS[network], seed)
            *_, last = train(model, data, precision, lr=lr, momentum=momentum, epochs=epochs, seed=seed)
            found[name].append(100 * last.accuracy)
    return found


def rows(found: Accuracies) -> list[dict]:
    """Mean and spread of each arithmetic, and what is promised of the means."""
    mean = {name: statistics.mean(values) for name, values in found.items()}
    spreads = [
        {"what": f"{name}: mean (least to most), %", "promised": "shown", "measured": spread(values)}
        for name, values in found.items()
    ]
    lost = {name: mean["float32"] - mean[name] for name in ("nearest", "stochastic")}
    return [
        *spreads,
        {"what": "nearest below float32, points", "promised": ">= 20", "measured": lost["nearest"]},
        {"what": "stochastic from float32, points", "promised": "<= 2", "measured": abs(lost["stochastic"])},
    ]


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def table(found: Accuracies, title: str) -> Table:
    shown = Table("seed", *found, title=title)
    for seed, accuracies in enumerate(zip(*found.values(), strict=True)):
        shown.add_row(str(seed), *(f"{accuracy:.1f}" for accuracy in accuracies))
    for name, of in (("mean", statistics.mean), ("least", min), ("most", max)):
        shown.add_row(name, *(f"{of(values):.1f}" for values in found.values()))
    return shown


def main(
    quick: Annotated[bool, typer.Option(help="An MLP, one seed, two epochs.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Train in each arithmetic."""
    setting: dict[str, Any] = {"network": "lenet", "seeds": 5, "epochs": 10, "lr": 0.01, "momentum": 0.9}
    if quick:
        setting |= {"network": "mlp", "seeds": 1, "epochs": 2}
    machine, found = describe(), measure(digits(size=28), **setting)
    title = f"{setting['network']} on digits, {WORD}, {setting['epochs']} epochs: held-out accuracy in percent"
    Console().print(table(found, title))
    findings = {
        "machine": machine,
        "note": f"{title}, over {setting['seeds']} seeds.",
        "setting": setting,
        "accuracies": found,
        "promises": rows(found),
    }
    results.save(findings, results.file("low_precision", quick, out))
