"""Stochastic rounding beside a copy and its peers: plain torch, torchao, qtorch; and on a GPU beside its bandwidth.

    python -m benchmarks rounding                    # a minute; 2^24 elements, 1 and 2 threads
    python -m benchmarks rounding --quick            # seconds: to see that it works, not to be quoted

Competitors take turns that rotate; outputs of ours and of the copy are memory that is there already, as in training,
while the peers offer no such thing. torchao and qtorch take part where they are installed (`pip install torchao qtorch
ninja`; qtorch compiles itself when it is imported), and are said to be absent where not.
"""

import statistics
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated, seconds
from benchmarks.peers.rounding import find_peers, frugal_torch, plain_torch
from hpcdl.kernels.cpu import rounding as rounding_cpu
from hpcdl.numerics.rounding import (
    BF16,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    Fixed,
    Format,
    encode,
    round_nearest,
    sgd_step,
    stochastic_round,
)
from hpcdl.numerics.rounding.plain import round_into

WORD = Fixed(4, 12)
OURS: dict[str, Format] = {"hpcdl BF16": BF16, "hpcdl FP16": FP16, "hpcdl FP8_E4M3": FP8_E4M3, "hpcdl fixed": WORD}
# (what, slower, faster, bound, whether `bound` is the most or the least): ratios of medians, on 2 threads
PROMISES = [
    ("BF16 / copy", "hpcdl BF16", "copy", 4.0, "<="),
    ("plain torch / BF16", "plain torch BF16", "hpcdl BF16", 10.0, ">="),
    ("qtorch / BF16", "qtorch BF16", "hpcdl BF16", 30.0, ">="),
    ("fixed / copy", "hpcdl fixed", "copy", 5.0, "<="),
    ("qtorch / fixed", "qtorch fixed", "hpcdl fixed", 20.0, ">="),
    ("fallback / Numba, BF16", "fallback BF16", "hpcdl BF16", 2.0, "<="),
    ("fallback / Numba, fixed", "fallback fixed", "hpcdl fixed", 2.0, "<="),
]
CARD = "sm_90"
COMPILED: dict[str, tuple[Format, str]] = {  # what -> the format, and the type that a kernel writes
    "BF16, stored": (BF16, "*bf16:16"),
    "fixed, stored": (WORD, "*i16:16"),
    "BF16": (BF16, "*fp32:16"),
    "fixed": (WORD, "*fp32:16"),
    "FP16": (FP16, "*fp32:16"),
    "FP8_E4M3": (FP8_E4M3, "*fp32:16"),
    "FP8_E5M2": (FP8_E5M2, "*fp32:16"),
}
GPU_PROMISES = [("bandwidth of a copy", 0.90), ("one call per element / one per eight", 1.4)]

Times = dict[str, list[float]]  # competitor -> seconds per round


def competitors(n: int) -> tuple[dict[str, Callable[[], object]], list[str]]:
    """Calls to measure on n elements, and a sentence for each peer that is absent."""
    x, out = torch.randn(n, generator=torch.Generator().manual_seed(0)), torch.empty(n)
    brain, g, v = torch.empty(n, dtype=torch.bfloat16), x * 1e-3, torch.zeros(n)
    weights = encode(round_nearest(x, BF16), BF16)
    calls: dict[str, Callable[..., object]] = {"copy": lambda: out.copy_(x)}
    for name, fmt in OURS.items():
        calls[name] = lambda fmt=fmt: stochastic_round(x, fmt, seed=1, out=out)
    calls["hpcdl BF16, stored"] = lambda: stochastic_round(x, BF16, seed=1, out=brain)
    calls["hpcdl SGD step, BF16"] = lambda: sgd_step(weights, g, v, BF16, lr=0.1, momentum=0.9, seed=1)
    calls["fallback BF16"] = lambda: round_into(x, out, BF16, 1, 0)
    calls["fallback fixed"] = lambda: round_into(x, out, WORD, 1, 0)
    calls["plain torch BF16"] = lambda: plain_torch(x)
    calls["frugal torch BF16"] = lambda: frugal_torch(x)
    peers, absent = find_peers(x, WORD)
    return calls | peers, absent


def check() -> None:
    """The fallback and the kernel agree to the last bit, or no time means anything."""
    x = torch.randn(1 << 17)
    for fmt in OURS.values():
        ours, plain = torch.empty_like(x), torch.empty_like(x)
        rounding_cpu.round_into(x, ours, fmt, 1, 0)
        round_into(x, plain, fmt, 1, 0)
        if not torch.equal(ours, plain):
            raise AssertionError(f"the kernel and the fallback differ in {fmt}")


def measure(calls: dict[str, Callable], rounds: int, threads: int) -> Times:
    """Seconds of each competitor in each round; a round takes them all, from another one each time."""
    torch.set_num_threads(threads)
    times: Times = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name in rotated(calls, number):
            taken = seconds(calls[name])
            if number:  # the first round warms up
                times[name].append(taken)
    return times


def ratios(times: Times) -> list[dict]:
    """Return the promised ratios, of medians and of minima, where both competitors took part."""
    rows = []
    for what, slower, faster, bound, sense in PROMISES:
        if {slower, faster} <= set(times):
            median, least = (f(times[slower]) / f(times[faster]) for f in (statistics.median, min))
            kept = median <= bound if sense == "<=" else median >= bound
            rows.append({"what": what, "promised": f"{sense} {bound:g}", "median": median, "min": least, "kept": kept})
    return rows


def instructions() -> list[dict]:
    """Of a thread for each element, by compiling ahead of time for a card that need not be there."""
    from hpcdl.kernels.ahead_of_time import compile_ahead
    from hpcdl.kernels.gpu.rounding import BLOCK, on_whole_blocks

    reports = compile_ahead(on_whole_blocks(fmt, out, CARD) for fmt, out in COMPILED.values())
    return [
        {"what": what, "promised": "<= 16", "measured": report.per_element(BLOCK), "registers": report.registers}
        for what, report in zip(COMPILED, reports, strict=True)
    ]


def on_gpu(n: int, rounds: int) -> dict | str:
    """Bytes per second beside a copy's, and the time beside a kernel that calls Philox for every element."""
    if not torch.cuda.is_available():
        return "not measured: this machine has no GPU"
    from benchmarks.peers.rounding_gpu import one_call_per_element

    x, brain = torch.randn(n, device="cuda"), torch.empty(n, dtype=torch.bfloat16, device="cuda")
    twin = torch.empty_like(x)
    calls = {
        "copy": lambda: twin.copy_(x),
        "hpcdl BF16, stored": lambda: stochastic_round(x, BF16, seed=1, out=brain),
        "one call per element": lambda: one_call_per_element(x, brain),
    }
    taken = {name: _gpu_seconds(call, rounds) for name, call in calls.items()}
    share = (6 * n / taken["hpcdl BF16, stored"]) / (8 * n / taken["copy"])
    gain = taken["one call per element"] / taken["hpcdl BF16, stored"]
    kept = [{"what": w, "promised": p, "measured": m} for (w, p), m in zip(GPU_PROMISES, (share, gain), strict=True)]
    return {"card": torch.cuda.get_device_name(), "seconds": taken, "promises": kept}


def _gpu_seconds(call: Callable, rounds: int) -> float:
    from triton.testing import do_bench

    return do_bench(call, rep=10 * rounds, return_mode="median") / 1e3


def table_of_times(times: Times, n: int, threads: int) -> Table:
    table = Table(title=f"{n:,} float32 elements, {threads} thread{'s' * (threads > 1)}: ns per element")
    for column in ("competitor", "min", "median", "copies"):
        table.add_column(column, justify="left" if column == "competitor" else "right")
    copy = statistics.median(times["copy"])
    for name, values in times.items():
        least, median = (f(values) / n * 1e9 for f in (min, statistics.median))
        table.add_row(name, f"{least:.2f}", f"{median:.2f}", f"{statistics.median(values) / copy:.1f}")
    return table


def table_of_promises(rows: list[dict], threads: int) -> Table:
    table = Table("ratio", "promised", "median", "min", "kept", title=f"Promises, {threads} threads")
    for row in rows:
        cells = row["what"], row["promised"], f"{row['median']:.2f}", f"{row['min']:.2f}"
        table.add_row(*cells, "yes" if row["kept"] else "NO")
    return table


def table_of_instructions(rows: list[dict]) -> Table:
    table = Table("kernel", "promised", "instructions", "registers", title=f"Each element on {CARD}, ahead of time")
    for row in rows:
        table.add_row(row["what"], row["promised"], f"{row['measured']:.2f}", str(row["registers"]))
    return table


def main(
    quick: Annotated[bool, typer.Option(help="2^20 elements, two rounds.")] = False,
    rounds: Annotated[int, typer.Option(help="Rounds for each number of threads.")] = 7,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure stochastic rounding beside its peers."""
    console, out = Console(), results.file("rounding", quick, out)
    n, rounds = (1 << 20, 2) if quick else (1 << 24, rounds)
    check()
    calls, absent = competitors(n)
    findings: dict[str, Any] = {"machine": describe(), "elements": n, "absent": absent}
    findings |= {"threads": {}, "gpu": on_gpu(n, rounds)}
    if find_spec("triton"):
        rows = instructions()
        findings[f"instructions of each element on {CARD}"] = {"promises": rows}
        console.print(table_of_instructions(rows))
    for threads in (1, 2):
        times = measure(calls, rounds, threads)
        rows = ratios(times)
        findings["threads"][threads] = {"seconds": times, "promises": rows}
        console.print(table_of_times(times, n, threads))
        console.print(table_of_promises(rows, threads))
    for sentence in absent:
        console.print(sentence)
    console.print(f"GPU: {findings['gpu']}")
    results.save(findings, out)
    console.print(f"All measurements: {out}")
