"""All-reduce on two ranks: our algorithms over MPI beside MPI_Allreduce and gloo; and the simulator's own time.

    python -m benchmarks collectives            # minutes; prints tables, writes benchmarks/results/collectives.json
    python -m benchmarks collectives --quick    # seconds: to see that it works, not to be quoted

Every competitor runs in the same two processes, in turns that rotate, on the same tensor: first on a plain one, then on
one of `comm.empty`, which the two ranks share, where it is long enough for that. Our algorithms run in their fast form
where they have one. A measurement is the time of the slower rank, of as many calls as fill a few milliseconds.
MPI_Allreduce allocates memory for each large call, which glibc by default fetches from the kernel and gives back each
time: so the processes run twice, in turns, with default and with raised malloc thresholds.
"""

import json
import os
import statistics
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.calls import calls_to_fill, slower_rank
from benchmarks.harness.machine import describe
from benchmarks.harness.tables import table_of_promises
from benchmarks.harness.turns import rotated
from hpcdl.cluster import find_launcher
from hpcdl.collectives import ALL_REDUCE, FAST, ring_all_reduce
from hpcdl.comm import simulate

SIZES = [4 * 4**k for k in range(13)]  # bytes: 4 B to 64 MB
QUICK = [4, 65_536, 4_194_304]
# glibc takes no mapping threshold above 32 MB; without mappings at all, and without trimming, nothing is given back.
RAISED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**27)}
MALLOC = {"default": {}, "raised": RAISED}
PEERS = ("MPI_Allreduce", "gloo")
TENSORS = ("plain", "shared")
SIMULATED = {256: 5.0, 1024: 90.0}  # ranks, and the seconds that are promised

Times = dict[str, dict[int, list[float]]]  # competitor -> bytes -> seconds per call
Everything = dict[str, dict[str, Times]]  # tensor -> malloc setting -> times


# -- in each of the two processes -------------------------------------------------------------------------------------


def work(sizes: list[int], repeats: int) -> dict[str, Times]:
    """Measure every competitor at every size, by tensor: the times, of the slower rank."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    mpi = MPI.COMM_WORLD
    comm = MPIComm(mpi)
    competitors = _competitors(mpi, comm)
    times: dict[str, Times] = {tensor: {name: {} for name in competitors} for tensor in TENSORS}
    for nbytes in sizes:
        x = torch.zeros(nbytes // 4)
        _compete(mpi, competitors, x, repeats, times["plain"])
        x = comm.empty(nbytes // 4).zero_()
        if comm.lends(x):
            _compete(mpi, competitors, x, repeats, times["shared"])
    return times


def _compete(mpi, competitors: dict, x: torch.Tensor, repeats: int, times: Times) -> None:
    calls = {name: calls_to_fill(mpi, f, x) for name, f in competitors.items()}
    for name, f in competitors.items():
        _check(name, f, x, mpi)
        times[name][x.nbytes] = []
    for repeat in range(repeats):
        for name in rotated(competitors, repeat):
            times[name][x.nbytes].append(slower_rank(mpi, competitors[name], x, calls=calls[name]))


def _competitors(mpi, comm) -> dict:
    from mpi4py import MPI

    def mpi_allreduce(x):
        buffer = MPI.buffer.fromaddress(x.data_ptr(), x.nbytes)
        mpi.Allreduce(MPI.IN_PLACE, [buffer, x.numel(), MPI.FLOAT], op=MPI.SUM)

    ours = {name: lambda x, f=f: f(x, comm) for name, f in (ALL_REDUCE | FAST).items()}
    return {**ours, "MPI_Allreduce": mpi_allreduce, "gloo": torch.distributed.all_reduce}


def _check(name, f, x, mpi) -> None:
    values = torch.arange(x.numel(), dtype=x.dtype) % 1000
    f(x.copy_(values + mpi.rank))
    if not torch.equal(x, mpi.size * values + sum(range(mpi.size))):
        raise AssertionError(f"{name} is wrong for {x.nbytes} bytes")
    x.zero_()


# -- here -------------------------------------------------------------------------------------------------------------


def run_pair(malloc: str, sizes: list[int], repeats: int) -> dict[str, Times]:
    """Return the times of one pair of processes, by tensor."""
    found = pair.run(__name__, sizes, repeats, env={**os.environ, **MALLOC[malloc]})
    return {
        tensor: {name: {int(nbytes): values for nbytes, values in column.items()} for name, column in times.items()}
        for tensor, times in found.items()
    }


def measure(sizes: list[int], rounds: int, repeats: int, console: Console) -> Everything:
    """All times by tensor and malloc setting: pairs of processes with each setting in turn, `rounds` times."""
    everything: Everything = {tensor: {malloc: {} for malloc in MALLOC} for tensor in TENSORS}
    for number in range(rounds):
        for malloc in MALLOC:
            console.print(f"round {number + 1} of {rounds}, malloc thresholds {malloc} ...", style="dim")
            for tensor, times in run_pair(malloc, sizes, repeats).items():
                for name, column in times.items():
                    for nbytes, values in column.items():
                        everything[tensor][malloc].setdefault(name, {}).setdefault(nbytes, []).extend(values)
    return everything


def simulator() -> list[dict]:
    """Seconds that a ring all-reduce over many simulated ranks takes, and the seconds promised."""
    rows = []
    for p, promised in SIMULATED.items():
        begin = time.perf_counter()
        run = simulate(lambda comm, p=p: ring_all_reduce(torch.ones(p), comm), p, alpha=1e-6)
        seconds = time.perf_counter() - begin
        rows.append({"ranks": p, "messages": sum(run.bytes_sent) // 4, "seconds": seconds, "promised": promised})
    return rows


def ratios(everything: Everything) -> list[dict]:
    """Return how many times faster the ring is than each peer, by size: of the medians and of the minima."""
    rows = []
    for tensor, settings in everything.items():
        for malloc, columns in settings.items():
            for peer in PEERS:
                for nbytes, theirs in columns.get(peer, {}).items():
                    ours = columns["ring"][nbytes]
                    rows.append(
                        {
                            "tensor": tensor,
                            "malloc": malloc,
                            "peer": peer,
                            "bytes": nbytes,
                            "median": statistics.median(theirs) / statistics.median(ours),
                            "min": min(theirs) / min(ours),
                        }
                    )
    return rows


def promises(rows: list[dict]) -> list[dict]:
    """Return the promised ratios, by median, each at the worst of its sizes; without sizes that were not measured."""
    wanted = [
        ("ring / MPI_Allreduce, 64 MB, default malloc", 2.0, "default", "MPI_Allreduce", 64 << 20),
        ("ring / MPI_Allreduce, 64 MB, raised thresholds", 0.95, "raised", "MPI_Allreduce", 64 << 20),
        ("ring / gloo, 1 MB to 64 MB, default malloc", 4.0, "default", "gloo", 1 << 20),
        ("ring / gloo, 1 MB to 64 MB, raised thresholds", 4.0, "raised", "gloo", 1 << 20),
    ]
    found = []
    for text, promised, malloc, peer, smallest in wanted:
        for tensor in TENSORS:
            setting = tensor, malloc, peer
            mine = [row for row in rows if (row["tensor"], row["malloc"], row["peer"]) == setting]
            medians = [row["median"] for row in mine if row["bytes"] >= smallest]
            if medians:
                found.append({"what": f"{text}, {tensor} tensor", "promised": promised, "measured": min(medians)})
    return found


# -- shown ------------------------------------------------------------------------------------------------------------


def table_of_times(setting: str, columns: Times) -> Table:
    table = Table(title=f"All-reduce of float32 on 2 ranks, microseconds: min / median ({setting})")
    table.add_column("size", justify="right")
    for name in columns:
        table.add_column(name, justify="right")
    for nbytes in columns["ring"]:
        cells = [columns[name][nbytes] for name in columns]
        table.add_row(_size(nbytes), *(f"{_us(min(cell))} / {_us(statistics.median(cell))}" for cell in cells))
    return table


def table_of_ratios(rows: list[dict], tensor: str) -> Table:
    kinds = [(malloc, peer) for malloc in MALLOC for peer in PEERS]
    table = Table(title=f"Ring: how many times faster than its peer, of medians (of minima), {tensor} tensor")
    table.add_column("size", justify="right")
    for malloc, peer in kinds:
        table.add_column(f"{peer}, {malloc}", justify="right")
    mine = [row for row in rows if row["tensor"] == tensor]
    found = {(row["malloc"], row["peer"], row["bytes"]): f"{row['median']:.2f} ({row['min']:.2f})" for row in mine}
    for nbytes in sorted({row["bytes"] for row in mine}):
        table.add_row(_size(nbytes), *(found[malloc, peer, nbytes] for malloc, peer in kinds))
    return table


def promise_of_simulator(row: dict) -> dict:
    what = f"seconds to simulate a ring over {row['ranks']:,} ranks, {row['messages']:,} messages, less than"
    return {**row, "what": what, "measured": row["seconds"], "kept": row["seconds"] < row["promised"]}


def _size(nbytes: int) -> str:
    for unit, bytes_ in (("MB", 1 << 20), ("KB", 1 << 10)):
        if nbytes >= bytes_:
            return f"{nbytes // bytes_} {unit}"
    return f"{nbytes} B"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f}" if seconds > 1e-4 else f"{seconds * 1e6:.1f}"


def main(
    quick: Annotated[bool, typer.Option(help="Three sizes, one round, no simulator of 1,024 ranks.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure all-reduce on two ranks beside its peers, and the simulator."""
    out = results.file("collectives", quick, out)
    console = Console()
    machine = describe() | {"mpi": find_launcher().mpi}
    console.print_json(json.dumps(machine))
    if quick:
        SIMULATED.pop(1024)
    times = measure(QUICK, 1, 3, console) if quick else measure(SIZES, 4, 9, console)
    rows, simulated = ratios(times), simulator()
    kept = promises(rows)
    for tensor, settings in times.items():
        for malloc, columns in settings.items():
            console.print(table_of_times(f"{tensor} tensor, malloc thresholds {malloc}", columns))
        console.print(table_of_ratios(rows, tensor))
    console.print(table_of_promises([*kept, *map(promise_of_simulator, simulated)]))
    findings = {"machine": machine, "seconds": times, "ratios": rows, "promises": kept, "simulator": simulated}
    results.save(findings, out)
    console.print(f"All measurements: {out}")
