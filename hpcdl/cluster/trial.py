"""`hpcdl cluster`: whether engines start where a profile says, and where each rank then runs."""

import contextlib
import sys
import time

from hpcdl.cluster.cluster import Cluster
from hpcdl.cluster.profiles import write_profile


def place_and_sum(comm):
    """What one rank says about itself: its machine, its threads, the sum over all ranks (each gives 1)."""
    import os
    import socket

    import torch

    x = torch.ones(1)
    comm.all_reduce(x)
    slurm_job = os.environ.get("SLURM_JOB_ID")
    return {"host": socket.gethostname(), "threads": torch.get_num_threads(), "sum": x.item(), "slurm_job": slurm_job}


def try_cluster(n: int, profile: str | None) -> dict:
    """Start `n` engines, run `place_and_sum`, stop; seconds and what each rank said. Raises ClusterError."""
    settings = str(write_profile(profile)) if profile else None
    if settings:
        print(f"Settings: {settings}", file=sys.stderr)
    begin = time.perf_counter()
    # What the cluster says meanwhile is not part of the findings.
    with contextlib.redirect_stdout(sys.stderr), Cluster(n, profile=profile) as cluster:
        ready = time.perf_counter()
        ranks = cluster.run(place_and_sum)
        done = time.perf_counter()
    seconds = {"start": ready - begin, "first run": done - ready, "stop": time.perf_counter() - done}
    return {"profile": profile, "settings": settings, "n": n, "seconds": seconds, "ranks": ranks}


def describe(findings: dict) -> str:
    """The findings for people, with the line for the notebook."""
    n, profile = findings["n"], findings["profile"]
    lines = [
        f"rank {rank}: {place['host']}, {place['threads']} thread{'s' * (place['threads'] > 1)}"
        + (f", Slurm job {place['slurm_job']}" if place["slurm_job"] else "")
        for rank, place in enumerate(findings["ranks"])
    ]
    lines.append(f"All {n} talk to each other: the sum of 1 over all ranks is {findings['ranks'][0]['sum']:g}.")
    lines.append(", ".join(f"{name} {seconds:.1f} s" for name, seconds in findings["seconds"].items()))
    where = f", profile={profile!r}" if profile else ""
    return "\n".join([*lines, f"In a notebook: cluster = Cluster(n={n}{where}).start()"])
