"""Convolution kernels on a GPU beside cuDNN (MIOpen on AMD) in both of its memory formats; nothing without a GPU.

    python -m benchmarks convolution_gpu                  # minutes, most of them for trying tiles
    python -m benchmarks convolution_gpu --quick          # two layers, one type: to see that it works, not to be quoted

Competitors take turns that rotate, timed by events on the device, each after the L2 cache was overwritten and while the
device is still busy, so that the host's launch is in no time; images and
filters are in the layout that each likes, and Winograd's filters are transformed before. The peer is the better of
cuDNN's two formats, with cuDNN free to try its own algorithms (torch.backends.cudnn.benchmark).
"""

import dataclasses
import math
import statistics
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
from hpcdl.conv import Problem

BATCH = 32
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32}
PEERS = ("cuDNN", "cuDNN channels_last")
WAYS = ("forward", "gradient of x", "gradient of w")
NOT_MEASURED, TITLE = "not measured: no GPU", "Promises, on a GPU: times as fast as cuDNN"
DEVICE = "cuda"
BUSY = 1_000_000  # cycles, half a millisecond: longer than a slow host needs for the launches of one call

Calls = dict[str, Callable[[], torch.Tensor]]
Times = dict[str, dict[str, float]]  # competitor -> min, median (seconds), error
Rows = dict[str, dict[str, dict[str, Times]]]  # layer -> type -> way


# -- what competes ----------------------------------------------------------------------------------------------------


def draw(problem: Problem, kind: str) -> list[torch.Tensor]:
    """x, w and dy in the type that is measured."""
    torch.manual_seed(0)
    shapes = problem.x_shape, problem.w_shape, problem.y_shape
    return [torch.randn(shape, device=DEVICE).to(TYPES[kind]) for shape in shapes]


def torchs(problem: Problem, way: str, x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    if way == "forward":
        return torch_conv2d(x, w, None, problem.stride, problem.padding, problem.dilation, problem.groups)
    geometry = problem.strides, problem.paddings, problem.dilations, False, [0, 0], problem.groups
    wanted = [name == way for name in (*WAYS[1:], "gradient of a bias")]
    return torch.ops.aten.convolution_backward(dy, x, w, None, *geometry, wanted)[wanted.index(True)]


def implicit(
    problem: Problem, way: str, precision: str, x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> torch.Tensor:
    from hpcdl.kernels.gpu.direct import forward, input_gradient, weight_gradient

    options = problem.strides, problem.paddings, problem.groups, precision
    if way == "forward":
        return forward(x, w, problem.y_shape[2:], *options)
    if way == "gradient of x":
        return input_gradient(dy, w, problem.x_shape, *options)
    return weight_gradient(x, dy, problem.w_shape, *options)


def competitors(problem: Problem, kind: str, way: str, tensors: Any) -> Calls:
    """Calls to measure; what is prepared once, layouts and Winograd's filters, is prepared here."""
    from hpcdl.kernels.gpu.depthwise import depthwise
    from hpcdl.kernels.gpu.winograd import transformed, winograd

    precision = "tf32" if kind == "tf32" else "fp32"
    last = [t.contiguous(memory_format=torch.channels_last) for t in tensors]
    calls: dict[str, Callable[..., torch.Tensor]] = {
        PEERS[0]: lambda: torchs(problem, way, *tensors),
        PEERS[1]: lambda: torchs(problem, way, *last),
    }
    if problem.groups == problem.C:
        x, w, _ = tensors
        return calls | {"depthwise": lambda: depthwise(x, w, problem.paddings, precision)}
    calls["implicit"] = lambda: implicit(problem, way, precision, *last)
    if way == "forward" and (problem.R, problem.S, problem.stride, problem.groups) == (3, 3, 1, 1):
        for m in (2, 4):
            given = m, last[0], transformed(m, last[1]), problem.y_shape[2:], problem.paddings, precision
            calls[f"winograd_{m}x{m}"] = lambda given=given: winograd(*given)
    return calls


# -- measured ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def measure(problem: Problem, kind: str, way: str, rounds: int) -> Times:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, kind == "tf32"
    errors = accuracy(dataclasses.replace(problem, N=2), kind, way)
    calls = competitors(problem, kind, way, draw(problem, kind))
    times: dict[str, list[float]] = {name: [] for name in calls}
    flush = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)
    for call in [*calls.values()] * 2:
        call()
    for turn in range(rounds):
        for name in rotated(calls, turn):
            flush.zero_()
            times[name].append(_seconds(calls[name]))
    return {
        name: {"min": min(found), "median": statistics.median(found), "error": errors[name]}
        for name, found in times.items()
    }


def accuracy(problem: Problem, kind: str, way: str) -> dict[str, float]:
    """Return the error of each competitor against float64 on the processor, relative to the largest value."""
    tensors = draw(problem, kind)
    exact = torchs(problem, way, *(t.double().cpu() for t in tensors))
    return {
        name: ((call().double().cpu() - exact).abs().max() / exact.abs().max()).item()
        for name, call in competitors(problem, kind, way, tensors).items()
    }


def _seconds(call) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(BUSY)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


# -- concluded and shown ----------------------------------------------------------------------------------------------


def speed(times: Times, name: str, statistic: str = "median") -> float:
    """Return how many times faster `name` is than the better of cuDNN's formats."""
    return min(times[peer][statistic] for peer in PEERS) / times[name][statistic]


def promises(rows: Rows) -> list[dict]:
    """Return what is promised, at least how much, and what was measured: None where nothing was."""
    three = [
        speed(rows[layer][kind]["forward"], "implicit")
        for layer, problem in LAYERS.items()
        for kind in ("fp16", "bf16")
        if problem.R == problem.S == 3 and kind in rows.get(layer, {})
    ]
    large = [speed(ways["forward"], "depthwise") for ways in rows.get("depthwise 31x31", {}).values()]
    mean = math.exp(statistics.mean(map(math.log, three))) if three else None
    found = [
        ("implicit product, fp16 and bf16, 3x3 layers, geometric mean", 0.75, mean),
        ("implicit product, fp16 and bf16, the slowest 3x3 layer", 0.5, min(three, default=None)),
        ("depthwise 31x31, the slowest type", 2.0, min(large, default=None)),
    ]
    return [dict(zip(("what", "promised", "measured"), row, strict=True)) for row in found]


def table_of_speeds(rows: Rows) -> Table:
    names = ("implicit", "winograd_2x2", "winograd_4x4", "depthwise")
    table = Table("layer", "type", "way", "cuDNN us", *names, title="Times as fast as cuDNN's better format (errors)")
    for layer, types in rows.items():
        for kind, ways in types.items():
            for way, times in ways.items():
                peer = min(times[name]["median"] for name in PEERS)
                cells = [f"{speed(times, n):.2f} ({times[n]['error']:.0e})" if n in times else "–" for n in names]
                table.add_row(layer, kind, way, f"{1e6 * peer:.0f}", *cells)
    return table


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Two layers in half precision, five rounds.")] = False,
    rounds: Annotated[int, typer.Option(help="Measurements of each competitor.")] = 50,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure the convolution kernels beside cuDNN, where there is a GPU."""
    console = Console()
    if not torch.cuda.is_available():
        console.print(table_of_promises(promises({}), TITLE, NOT_MEASURED))
        return
    machine = describe() | {"gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
    rows: Rows = {}
    for layer in ("ResNet 64@56", "depthwise 31x31") if quick else LAYERS:
        problem = dataclasses.replace(LAYERS[layer], N=BATCH)
        for kind in ["fp16"] if quick else TYPES:
            ways = WAYS[:1] if problem.groups == problem.C else WAYS
            found = {way: measure(problem, kind, way, 5 if quick else rounds) for way in ways}
            rows.setdefault(layer, {})[kind] = found
            console.print(f"{layer}, {kind}: measured", style="dim")
    console.print(table_of_speeds(rows), table_of_promises(promises(rows), TITLE, NOT_MEASURED))
    out = results.file("convolution_gpu", quick, out)
    results.save({"machine": machine, "batch": BATCH, "rows": rows, "promises": promises(rows)}, out)
    console.print(f"All measurements: {out}")
