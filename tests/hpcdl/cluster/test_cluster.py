"""Live engines: results in rank order, records while ranks run, and one readable error for every way to fail.

The ranks' functions stand in this file and are pickled by value, as a notebook's are: engines cannot import the tests.
"""

import inspect
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import psutil
import pytest
import torch

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning, publish
from hpcdl.cluster.launcher import LauncherError, find_launcher

pytestmark = pytest.mark.mpi

HERE = Path(__file__).name
N = 4


def quiet_cluster(n=N, **options) -> Cluster:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        return Cluster(n, **options).start()


@pytest.fixture(scope="module")
def cluster(need):
    try:
        find_launcher()
    except LauncherError as error:
        need("mpi", False, str(error))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with quiet_cluster() as running:
        yield running
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def pair(cluster):
    """Two engines, for what ends in a restart: two are up again sooner than four."""
    with quiet_cluster(2) as running:
        yield running


def failure(cluster, f, *args, timeout=20.0, **options) -> tuple[str, float]:
    """The message of the one error that `f` ends in, and the seconds it took; the next run must work."""
    cluster.run(who)
    begin = time.perf_counter()
    with pytest.raises(ClusterError) as caught:
        cluster.run(f, *args, timeout=timeout, **options)
    seconds = time.perf_counter() - begin
    assert [rank for rank, _ in cluster.run(who)] == list(range(cluster.n))
    return str(caught.value), seconds


def line(f, text):
    """Where `text` stands in `f`, as messages write it."""
    lines, first = inspect.getsourcelines(f)
    return f"{HERE}, line {first + next(i for i, code in enumerate(lines) if text in code)}"


def who(comm):
    return comm.rank, os.getpid()


# -- what works ------------------------------------------------------------------------------------------------------


def test_results_come_in_rank_order_from_one_process_per_rank(cluster):
    results = cluster.run(who)
    assert [rank for rank, _ in results] == list(range(N))
    assert len({pid for _, pid in results}) == N


def test_a_function_of_the_notebook_brings_its_closure_its_globals_and_its_classes(cluster):
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


# -- what fails ------------------------------------------------------------------------------------------------------


def test_a_rank_that_raises_is_named_with_its_line_and_the_others_do_not_wait_for_it(cluster):
    def work(comm):
        if comm.rank == 2:
            raise ValueError("a wrong shape")
        comm.recv(torch.zeros(3), source=2)

    message, seconds = failure(cluster, work)
    assert "rank 2 raised ValueError: a wrong shape at " in message
    assert line(work, "raise ValueError") in message
    assert "ranks 0, 1 and 3 stood in recv(source=2)" in message
    assert "ready for the next run" in message
    assert seconds < 3


def test_the_same_error_on_every_rank_is_said_once(cluster):
    def work(comm):
        return torch.zeros(2, 3) @ torch.zeros(2, 3)

    message, _ = failure(cluster, work)
    assert message.count("raised RuntimeError") == 1
    assert message.startswith("ranks 0 to 3 raised RuntimeError: mat1 and mat2")
    assert line(work, "@") in message


@pytest.mark.long
def test_the_end_of_a_forked_process_is_not_taken_for_the_ranks_own(pair):
    def work(comm):
        if comm.rank == 1:
            child = os.fork()
            if not child:
                os._exit(0)  # as a worker of multiprocessing ends
            os.waitpid(child, 0)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    message, _ = failure(pair, work)
    assert "killed from outside" in message
    assert "os._exit" not in message


@pytest.mark.long  # the faults on a notebook's kernel end a process too
def test_a_rank_that_ends_its_process_is_named_with_its_line(pair):
    def work(comm):
        if comm.rank == 1:
            os._exit(1)
        comm.barrier()

    before = dict(pair.run(who))
    message, seconds = failure(pair, work)
    assert "rank 1 died (os._exit(1)) at " in message
    assert line(work, "os._exit") in message
    assert "variables in them are gone" in message
    assert seconds < 4
    assert not any(psutil.pid_exists(pid) and alive(pid) for pid in before.values())


def test_a_rank_that_crashes_is_named_with_its_line(pair):
    def work(comm):
        import ctypes

        if comm.rank == 1:
            ctypes.string_at(0)
        comm.barrier()

    message, _ = failure(pair, work)
    assert "rank 1 died (Segmentation fault) at " in message
    assert line(work, "string_at") in message


@pytest.mark.long  # the faults on a notebook's kernel kill a rank too
def test_a_rank_that_is_killed_is_named_with_where_it_was_last_seen(pair):
    def work(comm):
        import time

        time.sleep(0.4)
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        comm.barrier()

    message, _ = failure(pair, work)
    assert "rank 1 died (its process was killed from outside" in message
    assert "last seen at" in message


def test_ranks_that_all_wait_to_receive_are_told_which_circle_they_stand_in(cluster):
    def both_wait(comm):
        x = torch.zeros(3)
        if comm.rank < 2:
            comm.recv(x, source=1 - comm.rank)

    message, seconds = failure(cluster, both_wait, timeout=1.0)
    assert "ranks 0 and 1 did not return within 1 s" in message
    assert "rank 0 stood in recv(source=1) at" in message
    assert line(both_wait, "comm.recv") in message
    assert "Deadlock: rank 0 waits to receive from rank 1, rank 1 waits to receive from rank 0." in message
    assert seconds < 1 + 3


def test_a_deadlock_is_told_long_before_the_time_is_up(pair):
    def both_wait(comm):
        comm.recv(torch.zeros(3), source=1 - comm.rank)

    message, seconds = failure(pair, both_wait, timeout=60)
    assert message.startswith("ranks 0 and 1 would wait for ever.")
    assert "Deadlock: rank 0 waits to receive from rank 1, rank 1 waits to receive from rank 0." in message
    assert line(both_wait, "comm.recv") in message
    assert seconds < 10, "2 s of waiting; the bound leaves room for a busy machine"


def test_a_rank_that_waits_for_one_that_has_returned_is_told_so(pair):
    def wait_for_nobody(comm):
        if comm.rank == 1:
            comm.barrier()

    message, _ = failure(pair, wait_for_nobody, timeout=60)
    assert message.startswith("rank 1 would wait for ever.")
    assert "barrier() waits for every rank, and rank 0 returned without calling it." in message


def test_ranks_that_wait_long_but_not_for_ever_are_left_alone(pair):
    def slow(comm):
        x = torch.full((2,), float(comm.rank))
        if comm.rank == 0:
            time.sleep(3)
            comm.send(x, 1)
        else:
            comm.recv(x, 0)
        return x.tolist()

    assert pair.run(slow) == [[0.0, 0.0], [0.0, 0.0]]


def test_an_endless_loop_ends_in_time_with_its_line_and_its_calls(cluster):
    def inner():
        while True:
            pass

    def outer(comm):
        if comm.rank == 0:
            inner()

    message, seconds = failure(cluster, outer, timeout=1.0)
    assert "rank 0 did not return within 1 s" in message
    assert "in outer: inner()" in message
    assert seconds < 1 + 3


def test_a_loop_that_swallows_every_exception_and_a_wait_inside_mpi_itself_are_ended_with_their_processes(pair):
    def work(comm):
        from mpi4py import MPI

        if comm.rank == 1:
            MPI.COMM_WORLD.recv(source=0)
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    message, seconds = failure(pair, work, timeout=0.5)
    assert "ranks 0 and 1 did not return within 0.5 s" in message
    assert f"rank 1 ran at tests/hpcdl/cluster/{line(work, 'recv')}: MPI.COMM_WORLD.recv(source=0)" in message
    assert "started anew" in message
    assert seconds < 0.5 + 4


def test_messages_left_behind_by_a_failed_run_do_not_reach_the_next(cluster):
    def leave(comm):
        if comm.rank == 0:
            comm.send(torch.full((2,), -1.0), 1)
            raise RuntimeError("too late")
        comm.barrier()

    def ask(comm):
        x = torch.zeros(2)
        if comm.rank == 0:
            comm.send(torch.full((2,), 7.0), 1)
        if comm.rank == 1:
            comm.recv(x, 0)
        return x.tolist()

    failure(cluster, leave)
    assert cluster.run(ask)[1] == [7.0, 7.0]


def test_a_stream_that_is_left_early_stops_its_ranks(cluster):
    def work(comm):
        while True:
            publish(comm.rank)
            comm.barrier()

    run = cluster.stream(work)
    next(iter(run))
    begin = time.perf_counter()
    run.close()
    assert time.perf_counter() - begin < 20  # the engines were told: they were not waited for
    assert [rank for rank, _ in cluster.run(who)] == list(range(N))


def test_ctrl_c_stops_all_ranks_and_the_cluster_lives_on(cluster):
    def work(comm):
        while True:
            comm.barrier()

    pids = cluster.run(who)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.run(work)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert cluster.run(who) == pids, "the engines are the same"


def test_wrong_arguments_are_refused(cluster):
    with pytest.raises(TypeError, match="it must be a function"):
        cluster.run("hello")
    with pytest.raises(ValueError, match="timeout is 0"):
        cluster.run(who, timeout=0)
    with pytest.raises(ValueError, match="n is 0; the number of engines"):
        Cluster(n=0)


# -- life and death --------------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_stopping_leaves_no_process_no_folder_and_no_shared_memory(cluster):
    other = quiet_cluster(2)
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
    cluster._processes, cluster._client = SimpleNamespace(engines=engines), Client()
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


def test_engines_die_with_a_kernel_that_is_killed():
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


def test_a_launcher_of_another_mpi_is_noticed_and_named(tmp_path):
    alone = tmp_path / "mpiexec"
    alone.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "mpiexec (OpenRTE) 4.1.4"; exit; }\nshift 2\n"$@" & "$@" & wait\n'
    )
    alone.chmod(0o755)
    with pytest.raises(
        ClusterError, match=r"do not know of each other.*MPICH.*mpiexec \(OpenRTE\) 4\.1\.4.*pip install"
    ):
        quiet_cluster(2, mpiexec=alone)
