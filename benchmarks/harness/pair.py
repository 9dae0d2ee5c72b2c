"""Two or more ranks of MPI that run a benchmark's `work`, and return what they found to the starting process."""

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.results import ROOT
from hpcdl.cluster import find_launcher

LAST = 8000  # letters of what ranks printed


def run(module: str, *order: Any, env: Mapping[str, str] = os.environ, seconds: float = 1800, ranks: int = 2):
    """What `work(*order)` of a module returns on rank 0 of two `ranks`, one thread each, as JSON has it.

    Raises RuntimeError when they fail, and prints what they printed last; TimeoutExpired after `seconds`.
    """
    with tempfile.TemporaryDirectory() as folder:
        rank = [sys.executable, "-m", "benchmarks.harness.pair", module, json.dumps([folder, ranks, *order])]
        process = subprocess.Popen(
            [find_launcher().path, "-n", str(ranks), *rank],
            env={**env, "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode:
            print(printed[-LAST:], file=sys.stderr)
            raise RuntimeError(
                f"the ranks of {module} ended with exit code {process.returncode}; what they printed last is above"
            )
        return json.loads(Path(folder, "found.json").read_text())


def answer(module: str, folder: str, ranks: int, *order: Any) -> None:
    """In a rank: do the module's work, with gloo between the ranks beside MPI, and write what rank 0 returns."""
    from mpi4py import MPI

    torch.set_num_threads(1)
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    if size != ranks:
        raise RuntimeError(
            f"{size} rank of {ranks}: mpiexec and mpi4py belong to different MPIs; `hpcdl doctor` says which is which"
        )
    os.environ["LOCAL_RANK"] = str(rank)  # DeepSpeed looks for it
    store = torch.distributed.FileStore(f"{folder}/store", size)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    found = importlib.import_module(module).work(*order)
    torch.distributed.destroy_process_group()
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    from mpi4py import MPI

    answer(sys.argv[1], *json.loads(sys.argv[2]))
    atexit._run_exitfuncs()  # takes in what would make MPI's end fail
    MPI.Finalize()
    sys.stdout.flush()
    os._exit(0)  # at the interpreter's end the thread of FSDP2's group may need Python once more (pytorch #179291)
