"""Convolution layers of well-known networks: our algorithms beside torch's, in both of its memory formats.

    python -m benchmarks convolution                                     # minutes; all layers, 1 and 2 threads
    python -m benchmarks convolution --quick                             # seconds: to see that it works
    python -m benchmarks convolution --layers "VGG conv3_2" --threads 2 --seconds 3
    python -m benchmarks convolution --report                            # tables and plot of what was measured before

Competitors take turns that rotate. Each algorithm gets its image in the layout it likes and filters prepared, as torch
gets an image in its format; names that end in "+ filters" transform the filters in each call. The peer is always the
better of torch's two formats. What is measured is merged into the JSON, so that layers can be measured one by one.
"""

import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch.nn.functional import conv2d as torch_conv2d

from benchmarks.harness import results
from benchmarks.harness.layers import LAYERS
from benchmarks.harness.machine import describe
from benchmarks.harness.tables import table_of_promises
from benchmarks.harness.turns import rotated
from benchmarks.harness.turns import seconds as seconds_of
from hpcdl.conv import ALGORITHMS, Problem, conv2d, prepare, quickest

PEERS = ("torch", "torch channels_last")
AUTO = ("auto", "auto channels_last")
LIKES_CHANNELS_LAST = ("direct", "im2col", "winograd_2x2", "winograd_4x4")
WITH_FILTERS = ("winograd_4x4", "fft")
WIDTH = 190  # characters that a row of the table needs
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
ROUNDS = 5  # at least
QUICK = "ResNet 256@14,ResNet 512@7"
SLOW = 8.0  # times the fastest: measured in the first rounds only
ERRORS = {"winograd_4x4": 3e-5, "direct": 2e-6, "im2col": 2e-6, "winograd_2x2": 2e-6, "fft": 2e-6}

Row = dict  # {"times": {competitor: {"min", "median", "rounds", "error"}}, "chosen": {competitor: name}, "machine"}


# -- measured ---------------------------------------------------------------------------------------------------------


def competitors(problem: Problem) -> tuple[dict[str, Callable[[], torch.Tensor]], dict[str, str], torch.Tensor]:
    """Calls to measure, what auto chooses, and the result for the first image in float64."""
    torch.manual_seed(0)
    x, w = torch.randn(problem.x_shape), torch.randn(problem.w_shape)
    last = {"memory_format": torch.channels_last}
    images, filters, w_last = {False: x, True: x.contiguous(**last)}, prepare(w), w.contiguous(**last)
    options: dict[str, Any] = {"stride": problem.stride, "padding": problem.padding, "groups": problem.groups}
    calls: dict[str, Callable[..., torch.Tensor]] = {
        "torch": lambda: torch_conv2d(x, w, **options),
        "torch channels_last": lambda: torch_conv2d(images[True], w_last, **options),
    }
    for name, algorithm in ALGORITHMS.items():
        if not algorithm.limits(problem):
            image = images[name in LIKES_CHANNELS_LAST]
            calls[name] = lambda algorithm=algorithm, image=image: algorithm(image, filters, **options)
            if name in WITH_FILTERS:
                calls[f"{name} + filters"] = lambda algorithm=algorithm, image=image: algorithm(image, w, **options)
    for name, image in zip(AUTO, images.values(), strict=True):
        calls[name] = lambda image=image: conv2d(image, filters, **options)
    chosen = {name: quickest(image, filters, problem) for name, image in zip(AUTO, images.values(), strict=True)}
    return calls, chosen, torch_conv2d(x[:1].double(), w.double(), **options)


@torch.no_grad()
def measure(problem: Problem, seconds: float) -> Row:
    """Time every competitor in turns, for about `seconds`; the slow ones in the first rounds only."""
    calls, chosen, exact = competitors(problem)
    times: dict[str, list[float]] = {name: [] for name in calls}
    errors = {name: _error(call()[:1], exact) for name, call in calls.items()}  # and warmed up
    end, turn = time.perf_counter() + seconds, 0
    while turn < ROUNDS or time.perf_counter() < end:
        for name in rotated(calls, turn):
            times[name].append(seconds_of(calls[name]))
        fastest = min(map(min, times.values()))
        calls = {name: call for name, call in calls.items() if turn < 1 or min(times[name]) < SLOW * fastest}
        turn += 1
    found = {name: _summary(values) | {"error": errors[name]} for name, values in times.items()}
    return {"times": found, "chosen": chosen, "machine": describe()}


def _summary(values: list[float]) -> dict:
    return {"min": min(values), "median": statistics.median(values), "rounds": len(values)}


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


# -- concluded --------------------------------------------------------------------------------------------------------


def best(row: Row, names: Any, statistic: str = "median") -> float:
    return min(row["times"][name][statistic] for name in names if name in row["times"])


def speed(row: Row, name: str, statistic: str = "median") -> float:
    """Return how many times faster `name` is than the better of torch's formats; for auto, its better format counts."""
    return best(row, PEERS, statistic) / best(row, AUTO if name == "auto" else [name], statistic)


def promises(layers: dict[str, Row]) -> list[dict]:
    """Return the promises about these layers, with what was measured (medians)."""
    single = [
        ("VGG conv3_2", "winograd_4x4", 1.15),
        ("VGG conv4_2", "winograd_4x4", 1.4),
        ("dense 13x13", "fft", 2.5),
        ("dense 13x13", "fft + filters", 1.0),
        ("depthwise 31x31", "fft", 0.8),
    ]
    found = [
        _promise(f"{name} on {layer}", least, speed(layers[layer], name))
        for layer, name, least in single
        if layer in layers
    ]
    speeds = {layer: speed(row, "auto") for layer, row in layers.items()}
    if set(layers) == set(LAYERS):
        near = sum(best(row, AUTO) <= 1.1 * best(row, row["times"]) for row in layers.values())
        found += [
            _promise(f"auto on every layer (least: {min(speeds, key=speeds.__getitem__)})", 0.95, min(speeds.values())),
            _promise("auto, geometric mean", 1.1, math.exp(statistics.mean(map(math.log, speeds.values())))),
            _promise("layers of 12 where auto is within 10 % of the best candidate", 11, near),
        ]
    for name, most in ERRORS.items():
        worst = max((row["times"][name]["error"] for row in layers.values() if name in row["times"]), default=0.0)
        found.append({"what": f"error of {name} at most", "promised": most, "measured": worst, "kept": worst <= most})
    return found


def _promise(what: str, least: float, measured: float) -> dict:
    return {"what": f"{what}, at least", "promised": least, "measured": measured, "kept": measured >= least}


# -- shown ------------------------------------------------------------------------------------------------------------


def table_of_speeds(threads: str, layers: dict[str, Row]) -> Table:
    names = [*PEERS, *(name for name in ALGORITHMS if any(name in row["times"] for row in layers.values()))]
    names += [*(f"{name} + filters" for name in WITH_FILTERS), "auto"]
    table = Table(
        title=f"Times faster than the better of torch's two formats, of medians (of minima); {threads} thread(s)"
    )
    table.add_column("layer", no_wrap=True)
    for name in ["ms", *names, "auto chose"]:
        title = name.replace("winograd_2x2", "F(2,3)").replace("winograd_4x4", "F(4,3)").replace(" ", "\n", 1)
        table.add_column(title, justify="right", no_wrap=True)
    for layer, row in layers.items():
        cells = [_speeds(row, name) for name in names]
        chosen = "\n".join(dict.fromkeys(row["chosen"].values()))
        table.add_row(layer, f"{1e3 * best(row, PEERS):.1f}", *cells, chosen)
    return table


def _speeds(row: Row, name: str) -> str:
    if name != "auto" and name not in row["times"]:
        return "–"
    return f"{speed(row, name):.2f} ({speed(row, name, 'min'):.2f})"


def plot(threads: str, layers: dict[str, Row], file: Path) -> None:
    """A row for each layer, a mark for each algorithm, on a logarithmic axis of speed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(layers) + 1.6), layout="constrained")
    marks = dict(zip([*ALGORITHMS, "auto"], "osv^DPx", strict=True))
    for name, mark in marks.items():
        points = [(speed(row, name), i) for i, row in enumerate(layers.values()) if name in row["times"]]
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=name, markersize=7, fillstyle="none", markeredgewidth=1.6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_yticks(range(len(layers)), layers)
    axes.invert_yaxis()
    axes.set_xlabel(f"times faster than torch in its better memory format (medians, {threads} thread(s))")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 1.1 / (len(layers) + 1)), ncols=7, frameon=False)
    figure.savefig(file, dpi=120)


def main(
    layers: Annotated[str, typer.Option(help="Names, or parts of names, with commas between; default: all.")] = "",
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas between.")] = "1,2",
    seconds: Annotated[float, typer.Option(help="For each layer and number of threads, at least five rounds.")] = 6.0,
    quick: Annotated[bool, typer.Option(help="Two small layers, a tenth of a second each.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file; it is added to.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Measure nothing; show what the file holds.")] = False,
) -> None:
    """Measure convolution layers beside torch."""
    console = Console(width=max(WIDTH, Console().width))
    out = results.file("convolution", quick, out)
    if quick:
        layers, seconds = layers or QUICK, 0.1
    found = json.loads(out.read_text()) if out.exists() else {}
    wanted = [name for name in LAYERS if any(part.strip().lower() in name.lower() for part in layers.split(","))]
    for count in [] if report else threads.split(","):
        torch.set_num_threads(int(count))
        for name in wanted:
            rows = found.setdefault(count, {}).setdefault("layers", {})
            rows[name] = measure(LAYERS[name], seconds)
            results.save(found, out)  # now: a long run may be cut off
            console.print(f"{count} thread(s), {name}: auto {speed(rows[name], 'auto'):.2f}x")
    for count, part in found.items():
        part["layers"] = {name: part["layers"][name] for name in LAYERS if name in part["layers"]}
        part["promises"] = promises(part["layers"])
        console.print(
            table_of_speeds(count, part["layers"]), table_of_promises(part["promises"], f"Promises, {count} thread(s)")
        )
        plot(count, part["layers"], out.with_name(f"{out.stem}-{count}.png"))
    results.save(found, out)
    console.print(f"All measurements: {out}")
