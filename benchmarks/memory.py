"""What the memory meter costs: a training step under it beside the same step alone, and under torch's own tracker.

    python -m benchmarks memory            # a minute; writes benchmarks/results/memory.json
    python -m benchmarks memory --quick    # seconds: to see that it works, not to be quoted

All of a model's three steps run in this process, in turns that rotate; each model is built once, its optimizer is Adam.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

from benchmarks.harness import results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated, seconds
from hpcdl.memory import meter
from hpcdl.nn.lenet import lenet5

PROMISED = 2.0  # a step under the meter takes less than so many steps alone
MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "LeNet-5, 64 images": lambda: (lenet5(), torch.randn(64, 1, 28, 28)),
    "MLP of 4 x 1024 x 1024, 64 rows": lambda: (mlp(4, 1024), torch.randn(64, 1024)),
    "transformer block, 8 x 64 tokens, 256 wide": lambda: (
        nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True),
        torch.randn(8, 64, 256),
    ),
}

Times = dict[str, list[float]]  # how -> seconds per step


def mlp(layers: int, width: int) -> nn.Module:
    """Linear layers with tanh between them."""
    parts = [(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)]
    return nn.Sequential(*(part for pair in parts for part in pair))


def compete(model: nn.Module, x: torch.Tensor, repeats: int) -> Times:
    """Seconds of a step alone, under our meter and under torch's tracker."""
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def alone() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def metered() -> None:
        with meter(model, optimizer, x):
            alone()

    def tracked() -> None:
        tracker = MemTracker()
        tracker.track_external(model, optimizer, x)
        with tracker:
            alone()

    competitors = {"alone": alone, "meter": metered, "MemTracker": tracked}
    times: Times = {name: [] for name in competitors}
    for turn in range(repeats + 1):
        for name in rotated(competitors, turn):
            taken = seconds(competitors[name])
            if turn:  # the first turn makes the optimizer's states
                times[name].append(taken)
    return times


def promises(found: dict[str, Times]) -> list[dict]:
    """By model how many steps alone one under the meter takes, and how much faster that is than torch's tracker."""
    middle = {
        model: {how: statistics.median(column) for how, column in times.items()} for model, times in found.items()
    }
    return [
        row
        for model, of in middle.items()
        for row in (
            {"what": f"{model}: meter / alone, less than", "promised": PROMISED, "measured": of["meter"] / of["alone"]},
            {"what": f"{model}: MemTracker / meter", "promised": "shown", "measured": of["MemTracker"] / of["meter"]},
        )
    ]


def table(found: dict[str, Times]) -> Table:
    shown = Table("model", "alone", "meter", "MemTracker", title="A training step, milliseconds: min / median")
    for model, times in found.items():
        shown.add_row(model, *(f"{1e3 * min(of):.2f} / {1e3 * statistics.median(of):.2f}" for of in times.values()))
    return shown


def main(
    quick: Annotated[bool, typer.Option(help="Three turns.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Time a step alone, under the memory meter and under torch's."""
    machine = describe()
    torch.manual_seed(0)
    found = {name: compete(*make(), 3 if quick else 60) for name, make in MODELS.items()}
    Console().print(table(found))
    findings = {"machine": machine, "seconds": found, "promises": promises(found)}
    results.save(findings, results.file("memory", quick, out))
