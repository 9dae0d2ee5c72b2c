"""`hpcdl cluster`: test whether a profile's engines start, and show where each rank runs."""

import contextlib
import signal
import sys
import time
import warnings
from collections.abc import Iterator

from hpcdl.cluster.cluster import Cluster
from hpcdl.cluster.processes import OversubscribedWarning
from hpcdl.cluster.profiles import write_profile
from hpcdl.comm import Communicator


def identify_and_sum(comm: Communicator) -> dict:
    """Return one rank's machine, threads, and the sum over all ranks (each gives 1)."""
    import os
    import socket

    import torch

    x = torch.ones(1)
    comm.all_reduce(x)
    slurm_job = os.environ.get("SLURM_JOB_ID")
    return {"host": socket.gethostname(), "threads": torch.get_num_threads(), "sum": x.item(), "slurm_job": slurm_job}


def try_cluster(n: int, profile: str | None) -> dict:
    """Start `n` engines, run `identify_and_sum`, stop; return the seconds and each rank's answer. Raises
    ClusterError."""
    settings = str(write_profile(profile)) if profile else None
    if settings:
        print(f"Settings: {settings}", file=sys.stderr)
    begin = time.perf_counter()
    # The cluster's own output is not part of the findings.
    with contextlib.redirect_stdout(sys.stderr), _noted(), _ended_by_sigterm(), Cluster(n, profile=profile) as cluster:
        ready = time.perf_counter()
        ranks = cluster.run(identify_and_sum)
        done = time.perf_counter()
    seconds = {"start": ready - begin, "first run": done - ready, "stop": time.perf_counter() - done}
    return {"profile": profile, "settings": settings, "n": n, "seconds": seconds, "ranks": ranks}


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """Print warnings as readable lines, without the path of the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", OversubscribedWarning)
        warnings.showwarning = lambda message, *_: print(f"Note: {message}.", file=sys.stderr)
        yield


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the program like an error: engines stop, and a waiting job leaves the queue."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def describe(findings: dict) -> str:
    """Return the findings as text, with the line for the notebook."""
    n, profile = findings["n"], findings["profile"]
    lines = [
        f"rank {rank}: {said['host']}, {said['threads']} thread{'s' * (said['threads'] > 1)}"
        + (f", Slurm job {said['slurm_job']}" if said["slurm_job"] else "")
        for rank, said in enumerate(findings["ranks"])
    ]
    lines.append(f"All {n} talk to each other: the sum of 1 over all ranks is {findings['ranks'][0]['sum']:g}.")
    lines.append(", ".join(f"{name} {seconds:.1f} s" for name, seconds in findings["seconds"].items()))
    where = f", profile={profile!r}" if profile else ""
    return "\n".join([*lines, f"In a notebook: cluster = Cluster(n={n}{where}).start()"])
