"""Random faults, one after another, on the engines of one notebook kernel."""

import os
import random
import signal
import sys
import warnings
from pathlib import Path

import cloudpickle
import psutil
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning

pytestmark = pytest.mark.mpi

START = """
import os, time, warnings
import psutil, torch
warnings.simplefilter("ignore")
from hpcdl.cluster import Cluster, ClusterError
from hpcdl.collectives import ring_all_reduce

kept = {"faults": 0}
cluster = Cluster(n=2).start()

def who(comm):
    x = torch.ones(5)
    comm.all_reduce(x)
    return comm.rank, x.tolist()

def lasts(process):
    try:
        return process.name() != "sleep"  # a lifeline's begins and ends in every second
    except psutil.NoSuchProcess:
        return False

def family():
    return [p.pid for p in psutil.Process().children(recursive=True) if lasts(p)]

cluster.run(who)
print(len(family()), cluster.directory)
"""

# What rank `bad` does, and what the one error then says.
FAULTS = {
    "raise": ("raise ValueError('weights')", ["rank {bad} raised ValueError: weights at Cell In["]),
    "exit": ("os._exit(7)", ["rank {bad} died (os._exit(7)) at Cell In["]),
    "kill": ("os.kill(os.getpid(), 9)", ["rank {bad} died (its process was killed from outside"]),
    "loop": ("while True: pass", ["did not return within 1 s", "while True: pass"]),
    "collective": (
        "comm.all_reduce(torch.ones(3))",
        ["rank 1 calls ", " where rank 0 called ", "at Cell In["],
    ),
    "shape": ("ring_all_reduce(torch.ones(7), comm)", ["raised MisfitError: rank", "out has "]),
}
CELL = """
def faulty(comm, bad):
    time.sleep({pause})
    if comm.rank == bad:
        {fault}
    else:
        {other}
kept["faults"] += 1
cluster.run(faulty, {bad}, timeout={timeout})
"""
OTHER = {"shape": "ring_all_reduce(torch.ones(64), comm)"}  # the rest wait in a barrier
AFTER = "print(cluster.run(who), kept, len(family()))"


@pytest.mark.parametrize(
    ("seed", "count"),
    [pytest.param(1, 6, id="6 faults"), pytest.param(2, 50, id="50 faults", marks=[pytest.mark.long])],
)
@pytest.mark.timeout(1200)
@pytest.mark.labs  # a killed rank is in the first tier
def test_cluster_recovers_from_each_fault(mpiexec, seed, count):
    draw = random.Random(seed)
    kinds = draw.sample(list(FAULTS), 6) + draw.choices(list(FAULTS), k=count - 6)
    bads = [draw.randrange(2) for _ in kinds]
    cells = [START]
    for kind, bad in zip(kinds, bads, strict=True):
        timeout = 1 if kind == "loop" else 20
        other = OTHER.get(kind, "comm.barrier()")
        pause = round(draw.uniform(0, 0.1), 3)
        cells += [CELL.format(pause=pause, fault=FAULTS[kind][0], other=other, bad=bad, timeout=timeout), AFTER]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in [*cells, "cluster.stop()\nprint(family())"]])
    NotebookClient(notebook, timeout=100, allow_errors=True, kernel_name="python3").execute()

    (printed,) = [output for output in notebook.cells[0].outputs if output.output_type == "stream"]
    size, directory = printed.text.split()
    for i, (kind, bad) in enumerate(zip(kinds, bads, strict=True)):
        fault, after = notebook.cells[1 + 2 * i], notebook.cells[2 + 2 * i]
        (error,) = [output for output in fault.outputs if output.output_type == "error"]
        assert error.ename == "ClusterError", (i, kind, error)
        (message,) = error.traceback
        for phrase in FAULTS[kind][1]:
            assert phrase.format(bad=bad) in message, (i, kind, bad, message)
        assert len(message.splitlines()) <= 14, message
        works = f"{[(0, [2.0] * 5), (1, [2.0] * 5)]} {{'faults': {i + 1}}} {size}"
        said = [output for output in after.outputs if output.output_type != "display_data"]  # how far the start is
        assert [output.get("text", "").strip() for output in said] == [works], (i, kind, message)
    assert notebook.cells[-1].outputs[0].text.strip() == "[]"
    left = [p.pid for p in psutil.process_iter() if directory in " ".join(_command(p))]
    assert not left


@pytest.mark.labs  # a killed rank is in the first tier: training/test_on_engines.py
def test_a_killed_rank_is_named_alone_whichever_it_is():
    """mpiexec hears nothing of it, and so ends no other for its sake."""

    def die(comm, bad):
        if comm.rank == bad:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        cluster = Cluster(3).start()
    with cluster:
        files = set(cluster._processes.shared_memory)
        assert files, "the ranks share memory"
        for bad in (2, 0, 1):
            with pytest.raises(ClusterError, match=f"^rank {bad} died .its process was killed from outside") as caught:
                cluster.run(die, bad)
            ends = {report.rank: report.end for report in caught.value.reports}
            assert [rank for rank, end in ends.items() if end == "died"] == [bad], ends
            files |= set(
                cluster._processes.shared_memory
            )  # of the engines that took the others' places, if they are up
    assert not any(Path(file).exists() for file in files)


def _command(process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
