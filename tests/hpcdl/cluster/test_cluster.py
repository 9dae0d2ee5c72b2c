"""Live engines: results in rank order, records while ranks run, and nothing left of a cluster that has ended."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning, publish

pytestmark = pytest.mark.mpi
N = 4

# -- what works ------------------------------------------------------------------------------------------------------


def test_results_come_in_rank_order_from_one_process_per_rank(cluster, who):
    results = cluster.run(who)
    assert [rank for rank, _ in results] == list(range(N))
    assert len({pid for _, pid in results}) == N


def test_notebook_function_carries_its_globals(cluster):
    weights = torch.arange(3.0)

    class Answer:
        def __init__(self, value):
            self.value = value

    def scaled(comm, factor, shift=0):
        return Answer((weights * factor + comm.rank + shift).tolist())

    results = cluster.run(scaled, 2.0)
    assert isinstance(results[3], Answer)
    assert results[3].value == [3.0, 5.0, 7.0]


def test_ranks_talk_through_the_communicator_they_receive(cluster):
    def ring(comm):
        from hpcdl.collectives import ring_all_reduce

        x = torch.arange(1003.0) + comm.rank
        ring_all_reduce(x, comm)
        return x

    expected = N * torch.arange(1003.0) + sum(range(N))
    assert all(torch.equal(x, expected) for x in cluster.run(ring))


def test_no_run_receives_what_an_earlier_one_left(cluster):
    """MPI gives the context of a communicator that was freed to the next one."""

    def leave(comm, numel):
        comm.isend(torch.zeros(numel), (comm.rank + 1) % comm.size, 3)

    def receive_late(comm):
        """The invitation to send by way of memory comes when nothing is left to send."""
        sent = comm.isend(torch.zeros(10_000), (comm.rank + 1) % comm.size, 3)
        comm.barrier()
        comm.recv(torch.empty(10_000), (comm.rank - 1) % comm.size, 3)
        sent.wait()

    def use(comm, number, numel):
        x = torch.full((numel,), float(number))
        sent, got = comm.isend(x, (comm.rank + 1) % comm.size, 3), torch.empty_like(x)
        comm.recv(got, (comm.rank - 1) % comm.size, 3)
        sent.wait()
        return got.unique().tolist()

    for number, numel in enumerate((4, 10_000, 4, 300_000, 4), start=1):
        cluster.run(leave, numel)
        assert cluster.run(use, number, numel) == [[number]] * N
        cluster.run(receive_late)
        assert cluster.run(use, number, 10_000) == [[number]] * N


def test_engines_stand_in_the_notebooks_folder_and_find_its_modules(cluster, tmp_path, monkeypatch):
    (tmp_path / "helper_beside_the_notebook.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def use(comm):
        import helper_beside_the_notebook

        return helper_beside_the_notebook.answer, os.getcwd()

    assert cluster.run(use) == [(42, str(tmp_path))] * N


def test_threads_fit_the_cores(cluster):
    from hpcdl.machine import cores

    def threads(comm):
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]

    expected = max(1, cores() // N)
    assert cluster.run(threads) == [(expected, str(expected))] * N


def test_records_arrive_while_the_ranks_run_each_with_its_rank_and_time(cluster):
    def work(comm):
        for step in range(3):
            publish({"step": step})
            time.sleep(0.3)
        return comm.rank * 10

    begin, arrivals = time.perf_counter(), []
    run = cluster.stream(work)
    for record in run:
        arrivals.append((record, time.perf_counter() - begin))
    assert run.results == [0, 10, 20, 30]
    for rank in range(N):
        mine = [(record.value["step"], record.seconds) for record, _ in arrivals if record.rank == rank]
        assert [step for step, _ in mine] == [0, 1, 2]
        assert mine[2][1] - mine[0][1] == pytest.approx(0.6, abs=0.3)
    first, last = arrivals[0][1], arrivals[-1][1]
    assert last - first > 0.4, "the first records were there long before the last"


def test_every_record_of_a_flood_arrives_in_order(cluster):
    def flood(comm):
        for i in range(500):
            publish(i)

    records = list(cluster.stream(flood))
    for rank in range(N):
        assert [record.value for record in records if record.rank == rank] == list(range(500))


def test_what_ranks_print_appears_with_their_rank(cluster, capsys):
    def speak(comm):
        print("first line of", comm.rank)
        print("second, unfinished", end="")

    cluster.run(speak)
    printed = capsys.readouterr().out.splitlines()
    for rank in range(N):
        assert f"[rank {rank}] first line of {rank}" in printed
    assert sum(text.endswith("second, unfinished") for text in printed) == N


def test_publish_outside_an_engine_does_nothing():
    assert publish({"loss": 1.0}) is None


# -- life and death --------------------------------------------------------------------------------------------------


@pytest.mark.labs  # engines of its own
def test_stopping_leaves_no_process_no_folder_and_no_shared_memory(cluster, who, alive, started):
    other = started(2)
    processes = [pid for _, pid in other.run(who)]
    folder = other.directory
    mine = {Path(memory.path) for pid in processes for memory in psutil.Process(pid).memory_maps()}
    mine = {path for path in mine if path.is_relative_to("/dev/shm")}
    begin = time.perf_counter()
    other.stop()
    assert time.perf_counter() - begin < 20  # a quiet machine: 0.5 s
    assert not any(alive(pid) for pid in processes)
    assert not folder.exists()
    assert not any(path.exists() for path in mine)
    with pytest.raises(ClusterError, match="this cluster was stopped"):
        other.run(who)


def test_an_engine_may_get_the_number_of_one_that_died_minutes_ago():
    """ipyparallel's controller forgets a dead engine when its heart has been silent for long."""
    seen = iter([[0, 1, 2, 3], [2, 3], [2, 3, 0], [2, 3, 0, 1]])

    class Client:
        @property
        def ids(self):
            return next(seen)

    cluster = Cluster(2)
    engines = SimpleNamespace(patience=5, why_ended=lambda: None)
    cluster._processes, cluster._client = SimpleNamespace(engines=engines, controller_ended=lambda: False), Client()
    cluster._known = {0, 1, 2, 3}
    assert cluster._wait_for_ids() == [0, 1]


HOST = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
from hpcdl.cluster import Cluster
cluster = Cluster(n=2).start()
pids = [engine.process.pid for engine in cluster.engines]
print(cluster.directory, cluster._processes.controller.pid, cluster._processes.engines.process.pid, *pids, flush=True)
time.sleep(60)
"""


@pytest.mark.labs  # engines of its own
def test_engines_die_with_a_kernel_that_is_killed(alive):
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    folder, *pids = host.stdout.readline().split()
    assert len(pids) == 4
    assert all(alive(int(pid)) for pid in pids)
    host.kill()
    host.communicate()
    deadline = time.monotonic() + 10
    while (any(alive(int(pid)) for pid in pids) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if alive(int(pid))]
    assert not Path(folder).exists()


def test_more_engines_than_cores_is_a_warning_with_its_effect(monkeypatch):
    monkeypatch.setattr("hpcdl.cluster.cluster.cores", lambda: 1)
    with pytest.warns(OversubscribedWarning, match="2 engines share 1 core: everything works, but they take turns"):
        Cluster(2)._warn_if_oversubscribed()


def test_a_launcher_of_another_mpi_is_noticed_and_named(tmp_path, started):
    alone = tmp_path / "mpiexec"
    alone.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "mpiexec (OpenRTE) 4.1.4"; exit; }\n'
        'while [ "$1" != /bin/sh ]; do shift; done\n"$@" & "$@" & wait\n'
    )
    alone.chmod(0o755)
    with pytest.raises(
        ClusterError, match=r"do not know of each other.*MPICH.*mpiexec \(OpenRTE\) 4\.1\.4.*pip install"
    ):
        started(2, mpiexec=alone)
