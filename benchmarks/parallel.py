"""Model parallelism on two ranks: ours over MPI beside torch.distributed's on gloo, and beside what is predicted.

    python -m benchmarks parallel            # minutes; prints tables, writes benchmarks/results/parallel.json
    python -m benchmarks parallel --quick    # seconds: to see that it works, not to be quoted

Every competitor works in the same two processes, one thread each, in turns that rotate. A time is that of the slower
rank, of a forward and a backward pass. "local" is rank 0 alone while rank 1 sleeps. Schedules are predicted by
`hpcdl.cost.pipeline` from F, B and W of each rank's parts and a message, timed in the same run while both ranks work.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import pair, results
from benchmarks.harness.machine import describe
from benchmarks.harness.tables import table_of_promises, table_of_times
from benchmarks.harness.turns import rotated
from hpcdl.cluster import find_launcher
from hpcdl.comm import Communicator
from hpcdl.parallel.schedules import SCHEDULES

PREDICTED = ("gpipe", "one_f_one_b", "zb_h1")
PROMISES = [  # ours, its peers (the better counts), and the least speed-up
    ("1F1B", ("torch 1F1B",), 1.15),
    ("GPipe", ("torch GPipe",), 1.4),
    ("ZB-H1", ("torch InterleavedZeroBubble", "torch ZBV"), 1.3),
    ("block", ("DTensor block",), 1.0),
    ("ring attention", ("dense attention",), 1.7),
    ("causal ring attention, striped", ("dense causal attention",), 1.7),
]
SELDOM = ("attention", "attention, plain", "attention, striped")  # a step takes a second or more: every fourth round
Step = Callable[[], object]


# -- in each of the two processes -------------------------------------------------------------------------------------


def work(rounds: int, steps: int, tokens: int) -> dict[str, Any]:
    """Times of all competitors, of the slower rank; what was predicted, what was sent and held."""
    from mpi4py import MPI

    from benchmarks.harness.cut_layers import attentions, blocks, scores, sent
    from benchmarks.harness.pipelines import held, pipelines, predict
    from hpcdl.comm import MPIComm

    comm = MPIComm(check=False)
    arms = pipelines(comm) | blocks(comm) | attentions(comm, tokens)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in rotated(arms, number):
            if name.endswith(SELDOM) and number % 4:
                continue
            alone = name == "local" or name.startswith("dense")
            times[name] += time_steps(arms[name], steps, comm, alone)
    slower = {name: [MPI.COMM_WORLD.allreduce(s, op=MPI.MAX) for s in values] for name, values in times.items()}
    return {
        "steps": slower,
        "predicted": [predict(name, rounds * steps, comm, MPI.COMM_WORLD) for name in PREDICTED],
        "held": {name: MPI.COMM_WORLD.allgather(held(name, comm)) for name in PREDICTED},
        "bytes": sent(comm),
        "scores": scores(comm, min(tokens, 2048)),
    }


def time_steps(step: Step, steps: int, comm: Communicator, alone: bool) -> list[float]:
    """Seconds of `steps` steps, after one to warm up; with `alone` the other rank sleeps meanwhile."""
    comm.barrier()
    seconds = [0.0] * steps
    if comm.rank == 0 or not alone:
        step()
        for i in range(steps):
            begin = time.perf_counter()
            step()
            seconds[i] = time.perf_counter() - begin
    comm.barrier()
    return seconds


# -- here -------------------------------------------------------------------------------------------------------------


def ratios(steps: dict[str, list[float]]) -> list[dict]:
    """Return how many steps ours takes in the time of one of the better peer: of the medians and of the minima."""
    rows = []
    for name, peers, _ in PROMISES:
        for peer in peers:
            median = statistics.median(steps[peer]) / statistics.median(steps[name])
            rows.append({"ours": name, "peer": peer, "median": median, "min": min(steps[peer]) / min(steps[name])})
    return rows


def promises(found: dict[str, Any], rows: list[dict]) -> list[dict]:
    """Return what was asked beside what was measured; by medians, and of two peers by the better."""
    kept = []
    for name, peers, least in PROMISES:
        measured = min(row["median"] for row in rows if row["ours"] == name)
        kept.append({"what": f"{name} / {' and '.join(peers)}", "promised": least, "measured": measured})
    for row in found["predicted"]:
        error = abs(row["measured"] / row["predicted"] - 1)
        kept.append(
            {"what": f"{row['schedule']}: 1 - |measured / predicted - 1|", "promised": 0.9, "measured": 1 - error}
        )
    for name, microbatches in found["held"].items():
        bounds = [SCHEDULES[name].in_flight(2, 8, i) for i in range(2)]
        equal = float(microbatches == bounds)
        kept.append({"what": f"{name}: microbatches held are the bound's", "promised": 1.0, "measured": equal})
    equal = float(found["bytes"]["measured"] == found["bytes"]["predicted"])
    kept.append({"what": "block: bytes sent are the predicted ones", "promised": 1.0, "measured": equal})
    fewer = 1 / found["scores"]["ratio"]
    kept.append({"what": "attention on one rank / ring attention: peak memory", "promised": 3.5, "measured": fewer})
    return kept


def table_of_schedules(found: dict[str, Any]) -> Table:
    table = Table("schedule", "predicted ms", "measured ms", "held by each rank", title="Makespans of 8 microbatches")
    for row in found["predicted"]:
        times = f"{row['predicted'] * 1e3:.2f}", f"{row['measured'] * 1e3:.2f}"
        table.add_row(row["schedule"], *times, ", ".join(map(str, found["held"][row["schedule"]])))
    return table


def main(
    quick: Annotated[bool, typer.Option(help="Two rounds of one step, short sequences.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure model parallelism on two ranks beside its peers."""
    out = results.file("parallel", quick, out)
    console, machine = Console(), describe() | {"mpi": find_launcher().mpi}
    console.print_json(json.dumps(machine))
    found = pair.run(__name__, *((2, 1, 512) if quick else (20, 3, 8192)))
    rows = ratios(found["steps"])
    kept = promises(found, rows)
    for table in (
        table_of_times(found["steps"], "A forward and a backward pass on 2 ranks"),
        table_of_schedules(found),
        table_of_promises(kept),
    ):
        console.print(table)
    results.save({"machine": machine, **found, "ratios": rows, "promises": kept}, out)
    console.print(f"All measurements: {out}")
