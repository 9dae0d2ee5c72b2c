"""Engines for tests of a live cluster.

What ranks call is defined inside tests and fixtures, so that it is pickled by value, as a notebook's functions are:
engines cannot import the tests.
"""

import contextlib
import inspect
import os
import time
import warnings
from pathlib import Path

import psutil
import pytest

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning
from hpcdl.cluster.launcher import LauncherError, find_launcher

# -- engines ----------------------------------------------------------------------------------------------------------


def started(n: int, **options) -> Cluster:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        return Cluster(n, **options).start()


@pytest.fixture(name="started")
def started_fixture():
    """`started(n)` is a cluster of n engines that says nothing of how many cores there are."""
    return started


@pytest.fixture(scope="module")
def cluster(need):
    try:
        find_launcher()
    except LauncherError as error:
        need("mpi", False, str(error))
    with started(4) as running:
        yield running


@pytest.fixture(scope="module")
def pair(cluster):
    """Two engines, for what ends in a restart: two are up again sooner than four."""
    with started(2) as running:
        yield running


@pytest.fixture
def who():
    def who(comm):
        return comm.rank, os.getpid()

    return who


@pytest.fixture
def failure(who):
    """`failure(cluster, f)`: the message of the one error that `f` ends in, and its seconds; the next run must work."""

    def failure(cluster, f, *args, timeout=20.0, **options) -> tuple[str, float]:
        cluster.run(who)
        begin = time.perf_counter()
        with pytest.raises(ClusterError) as caught:
            cluster.run(f, *args, timeout=timeout, **options)
        seconds = time.perf_counter() - begin
        assert [rank for rank, _ in cluster.run(who)] == list(range(cluster.n))
        return str(caught.value), seconds

    return failure


@pytest.fixture
def line():
    """`line(f, text)`: where `text` stands in `f`, as messages write it."""

    def line(f, text: str) -> str:
        lines, first = inspect.getsourcelines(f)
        found = first + next(i for i, code in enumerate(lines) if text in code)
        return f"{Path(inspect.getsourcefile(f)).name}, line {found}"

    return line


@pytest.fixture
def alive():
    """`alive(pid)`: whether that process runs."""

    def alive(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return alive


@pytest.fixture
def left():
    """`left(mark)`: the commands of processes that have `mark` in their environment, as `HPCDL_TEST_MARK`."""

    def left(mark: str) -> list[str]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has just ended
                if process.environ().get("HPCDL_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
        return found

    return left
