"""All-to-all on two ranks: ours over MPI beside MPI_Alltoall and gloo.

    python -m benchmarks all_to_all            # minutes; writes benchmarks/results/all_to_all.json
    python -m benchmarks all_to_all --quick    # seconds: to see that it works, not to be quoted

Every competitor runs in the same two processes, in turns that rotate, from the same tensor into the same other one:
first from a plain one, then from one of `comm.empty`, which its neighbour reads where it is. A measurement is the time
of the slower rank, of as many calls as fill a few milliseconds. Half of what a rank has stays with it, and is copied.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.calls import calls_to_fill, slower_rank
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated
from hpcdl.cluster import find_launcher
from hpcdl.collectives import all_to_all

SIZES = [1 << 20, 4 << 20, 16 << 20, 64 << 20]  # bytes of each rank's tensor
QUICK = [1 << 20, 4 << 20]
PROMISED = {"MPI_Alltoall": 0.95, "gloo": 3.0}  # how many times faster ours is, at every size
TENSORS = ("plain", "shared")

Times = dict[str, dict[int, list[float]]]  # competitor -> bytes -> seconds per call


# -- in each of the two processes -------------------------------------------------------------------------------------


def work(sizes: list[int], repeats: int) -> dict[str, Times]:
    """Measure every competitor at every size, by tensor: the times, of the slower rank."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    mpi = MPI.COMM_WORLD
    comm = MPIComm(mpi)
    empty: dict[str, Callable[..., torch.Tensor]] = {"plain": torch.empty, "shared": comm.empty}
    competitors = _competitors(mpi, comm)
    times: dict[str, Times] = {tensor: {name: {} for name in competitors} for tensor in TENSORS}
    for nbytes in sizes:
        for tensor in TENSORS:
            x, out = empty[tensor](nbytes // 4), torch.empty(nbytes // 4)
            _compete(mpi, competitors, x, out, repeats, times[tensor])
    return times


def _competitors(mpi, comm) -> dict:
    from mpi4py import MPI

    def mpi_alltoall(x, out):
        sent, taken = (MPI.buffer.fromaddress(tensor.data_ptr(), tensor.nbytes) for tensor in (x, out))
        mpi.Alltoall([sent, x.numel() // 2, MPI.FLOAT], [taken, x.numel() // 2, MPI.FLOAT])

    return {
        "all_to_all": lambda x, out: all_to_all(x, comm, out=out),
        "MPI_Alltoall": mpi_alltoall,
        "gloo": lambda x, out: torch.distributed.all_to_all_single(out, x),
    }


def _compete(mpi, competitors: dict, x: torch.Tensor, out: torch.Tensor, repeats: int, times: Times) -> None:
    calls = {name: calls_to_fill(mpi, f, x, out) for name, f in competitors.items()}
    for name, f in competitors.items():
        _check(name, f, x, out, mpi.rank)
        times[name][x.nbytes] = []
    for repeat in range(repeats):
        for name in rotated(competitors, repeat):
            times[name][x.nbytes].append(slower_rank(mpi, competitors[name], x, out, calls=calls[name]))


def _check(name, f, x, out, rank: int) -> None:
    values = (torch.arange(x.numel(), dtype=x.dtype) % 1000).view(2, -1)
    f(x.copy_(values.view(-1) + rank), out.zero_())
    if not torch.equal(out.view(2, -1), torch.stack([values[rank], values[rank] + 1])):
        raise AssertionError(f"{name} is wrong for {x.nbytes} bytes")


# -- here -------------------------------------------------------------------------------------------------------------


def measure(sizes: list[int], rounds: int, repeats: int, console: Console) -> dict[str, Times]:
    """All times by tensor, of `rounds` pairs of processes."""
    everything: dict[str, Times] = {tensor: {} for tensor in TENSORS}
    for number in range(rounds):
        console.print(f"round {number + 1} of {rounds} ...", style="dim")
        for tensor, times in pair.run(__name__, sizes, repeats).items():
            for name, column in times.items():
                for nbytes, values in column.items():
                    everything[tensor].setdefault(name, {}).setdefault(nbytes, []).extend(values)
    return everything


def ratios(everything: dict[str, Times]) -> list[dict]:
    """Return how many times faster ours is than each peer, by tensor and size: of the medians and of the minima."""
    return [
        {
            "tensor": tensor,
            "peer": peer,
            "bytes": int(nbytes),
            "median": statistics.median(theirs) / statistics.median(times["all_to_all"][nbytes]),
            "min": min(theirs) / min(times["all_to_all"][nbytes]),
        }
        for tensor, times in everything.items()
        for peer in PROMISED
        for nbytes, theirs in times[peer].items()
    ]


def promises(rows: list[dict]) -> list[dict]:
    """Return what is promised, by median, at the worst of the sizes."""
    return [
        {
            "what": f"all_to_all / {peer}, 1 MB to 64 MB, {tensor} tensor",
            "promised": promised,
            "measured": min(row["median"] for row in rows if (row["peer"], row["tensor"]) == (peer, tensor)),
        }
        for peer, promised in PROMISED.items()
        for tensor in TENSORS
    ]


def table(everything: dict[str, Times], rows: list[dict]) -> Table:
    found = Table(title="All-to-all of float32 on 2 ranks, milliseconds: min / median; how many times faster ours is")
    for name in ("tensor", "MB", "all_to_all", *PROMISED):
        found.add_column(name, justify="right")
    for tensor, times in everything.items():
        for nbytes, ours in times["all_to_all"].items():
            theirs = [
                f"{_ms(times[row['peer']][nbytes])}; {row['median']:.2f} ({row['min']:.2f} of minima)"
                for row in rows
                if (row["tensor"], row["bytes"]) == (tensor, int(nbytes))
            ]
            found.add_row(tensor, str(int(nbytes) >> 20), _ms(ours), *theirs)
    return found


def _ms(seconds: list[float]) -> str:
    return f"{min(seconds) * 1e3:.2f} / {statistics.median(seconds) * 1e3:.2f}"


def main(
    quick: Annotated[bool, typer.Option(help="Two sizes, one round.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure all-to-all on two ranks beside its peers."""
    out = results.file("all_to_all", quick, out)
    console, machine = Console(), describe() | {"mpi": find_launcher().mpi}
    console.print_json(json.dumps(machine))
    times = measure(QUICK, 1, 3, console) if quick else measure(SIZES, 4, 15, console)
    rows = ratios(times)
    console.print(table(times, rows))
    results.save({"machine": machine, "seconds": times, "ratios": rows, "promises": promises(rows)}, out)
    console.print(f"All measurements: {out}")
