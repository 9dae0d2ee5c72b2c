"""Programs over real MPI, under a time limit, which leave nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from hpcdl.cluster import find_launcher, lifeline
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
        with _without_its_shared_memory(process):
            try:
                printed, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                _kill_family(process)
                pytest.fail(f"{p} ranks did not end within {seconds} s; they printed:\n{process.communicate()[0]}")
        return process.returncode, printed

    return run


@contextlib.contextmanager
def _without_its_shared_memory(process: subprocess.Popen):
    """Remove the files in /dev/shm that its ranks used, which MPI leaves behind where a rank is killed."""
    files, over = set(), threading.Event()

    def watch():
        while not over.wait(0.1):
            with contextlib.suppress(psutil.Error):
                for rank in psutil.Process(process.pid).children(recursive=True):
                    files.update(lifeline.shared_memory(rank.pid))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        for file in files:
            with contextlib.suppress(OSError):
                os.unlink(file)


def _kill_family(process: subprocess.Popen) -> None:
    """mpiexec and its ranks, which are in sessions of their own."""
    with contextlib.suppress(psutil.Error):
        for member in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                member.kill()
    os.killpg(process.pid, signal.SIGKILL)
