"""Consistency: parameter servers, HOGWILD!, live BSP, SSP and ASP beside the clock, L-BFGS by a coordinator.

    python -m benchmarks consistency            # minutes; prints tables, writes benchmarks/results/consistency.json
    python -m benchmarks consistency --quick    # seconds: to see that it works, not to be quoted

- server: a step of a worker with 16.8 MB of weights, each way, on two ranks: ours over MPI and torch's over RPC in the
  tutorial's form, in turns, after the same compute, and after none.
- HOGWILD!: updates per second of sparse logistic regression on two threads, beside one thread, locks, round robin, and
  torch.multiprocessing's example on the same rows (one row an update, as ours; in batches of 64, rows per second).
- live: four ranks, a server and three workers that sleep instead of computing, one three times as long; steps per
  second beside what `timeline` says of the measured times.
- counted: L-BFGS's iterations and torch's, a dot product's bytes; 1,024 simulated ranks under SSP.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.consistency import LIVE, counted, hogwild
from benchmarks.harness.machine import describe
from benchmarks.harness.tables import table_of_promises, table_of_times
from hpcdl.cluster import find_launcher

PROMISES = [  # what, ours in the findings, the peer, at least so many times as fast
    ("parameter server / torch RPC, steps per second", "server", "torch RPC", 2.0),
    ("parameter server / torch RPC, no compute", "server, no compute", "torch RPC, no compute", 2.0),
    ("HOGWILD! / torch.multiprocessing, updates per second", "2 threads", "torch example", 10.0),
    ("HOGWILD! / one thread", "2 threads", "1 thread", 1.6),
    ("HOGWILD! / round robin", "2 threads", "round robin", 3.0),
]


def work(what: str, *order: Any) -> Any:
    """In a rank: what of this benchmark runs over MPI."""
    from benchmarks.harness import consistency

    return getattr(consistency, what)(*order)


def promises(found: dict[str, Any]) -> list[dict]:
    """Return what was asked beside what was measured, by medians."""
    times = {
        name: statistics.median(values) for name, values in (found["server"] | found["hogwild"]["seconds"]).items()
    }
    kept = [
        {"what": what, "promised": least, "measured": times[peer] / times[ours]} for what, ours, peer, least in PROMISES
    ]
    losses = found["hogwild"]["losses"]
    apart = abs(losses["2 threads"] / losses["1 thread"] - 1)
    kept.append(
        {"what": "HOGWILD! on two threads: 1 - |loss / loss on one - 1|", "promised": 0.99, "measured": 1 - apart}
    )
    for name, row in found["live"].items():
        agreement = 1 - abs(row["measured"] / row["predicted"] - 1)
        kept.append(
            {"what": f"{name}: 1 - |steps per second / the clock's - 1|", "promised": 0.85, "measured": agreement}
        )
    more = found["counted"]
    equal = float(more["iterations"]["ours"] == more["iterations"]["torch"])
    kept.append({"what": "L-BFGS: as many iterations as torch's", "promised": 1.0, "measured": equal})
    same = float(len(set(more["bytes of a dot product"].values())) == 1)
    kept.append({"what": "a dot product's bytes do not depend on n", "promised": 1.0, "measured": same})
    kept.append(
        {"what": "60 s / 1,024 simulated ranks, SSP, 100 steps", "promised": 1.0, "measured": 60 / more["seconds"]}
    )
    return kept


def table_of_live(live: dict[str, dict]) -> Table:
    table = Table(
        "", "steps/s", "by the clock", "share of waiting", "staleness, median and most", title="Four live ranks"
    )
    for name, row in live.items():
        old = row["staleness"]
        rates = f"{row['measured']:.1f}", f"{row['predicted']:.1f}"
        table.add_row(name, *rates, f"{100 * row['waiting']:.0f} %", f"{statistics.median(old):g}, {max(old)}")
    return table


def main(
    quick: Annotated[bool, typer.Option(help="Few steps, and 64 simulated ranks.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure parameter servers and HOGWILD! beside their peers."""
    out = results.file("consistency", quick, out)
    console, machine = Console(), describe() | {"mpi": find_launcher().mpi}
    console.print_json(json.dumps(machine))
    torch.set_num_threads(1)
    begin = time.perf_counter()
    found = {
        "server": pair.run(__name__, "server", *((2, 2) if quick else (20, 5))),
        "hogwild": hogwild(*((2, 2000, 200) if quick else (7, 20_000, 2000))),
        "live": {name: pair.run(__name__, "live", name, 10 if quick else 100, ranks=4) for name in LIVE},
        "counted": counted(64 if quick else 1024),
    }
    kept = promises(found)
    times = table_of_times(
        found["server"] | found["hogwild"]["seconds"], "A step of the parameter server; 10,000 updates"
    )
    for table in (times, table_of_live(found["live"]), table_of_promises(kept)):
        console.print(table)
    results.save({"machine": machine, **found, "promises": kept}, out)
    console.print(f"All measurements, {time.perf_counter() - begin:.0f} s: {out}")
