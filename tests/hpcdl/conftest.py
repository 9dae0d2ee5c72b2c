"""Programs over real MPI, under a time limit, of which nothing is left behind."""

import os
import signal
import subprocess
import sys

import pytest

from hpcdl.cluster import find_launcher
from hpcdl.cluster.launcher import LauncherError


@pytest.fixture(scope="session")
def mpiexec(need):
    """`mpiexec(p, "-c", program)` runs Python on `p` ranks and returns exit code and output; skips without MPI."""
    try:
        launcher = find_launcher()
    except LauncherError as error:
        need("mpi", False, str(error))

    def run(p: int, *arguments: str, seconds: float = 200) -> tuple[int, str]:
        process = subprocess.Popen(
            [launcher.path, "-n", str(p), sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"{p} ranks did not end within {seconds} s; they printed:\n{process.communicate()[0]}")
        return process.returncode, printed

    return run
