"""Every way in which a rank on an engine can fail ends in one readable error, and the next run works."""

import os
import signal
import time

import psutil
import pytest
import torch

from hpcdl.cluster import Cluster, publish

pytestmark = pytest.mark.mpi
N = 4


def test_failed_rank_is_named_with_its_line(cluster, failure, line):
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


def test_the_same_error_on_every_rank_is_said_once(cluster, failure, line):
    def work(comm):
        return torch.zeros(2, 3) @ torch.zeros(2, 3)

    message, _ = failure(cluster, work)
    assert message.count("raised RuntimeError") == 1
    assert message.startswith("ranks 0 to 3 raised RuntimeError: mat1 and mat2")
    assert line(work, "@") in message


@pytest.mark.long
def test_the_end_of_a_forked_process_is_not_taken_for_the_ranks_own(pair, failure):
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
def test_a_rank_that_ends_its_process_is_named_with_its_line(pair, failure, line, who, alive):
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


def test_a_rank_that_crashes_is_named_with_its_line(pair, failure, line):
    def work(comm):
        import ctypes

        if comm.rank == 1:
            ctypes.string_at(0)
        comm.barrier()

    message, _ = failure(pair, work)
    assert "rank 1 died (Segmentation fault) at " in message
    assert line(work, "string_at") in message


@pytest.mark.long  # the faults on a notebook's kernel kill a rank too
def test_a_rank_that_is_killed_is_named_with_where_it_was_last_seen(pair, failure):
    def work(comm):
        import time

        time.sleep(0.4)
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        comm.barrier()

    message, _ = failure(pair, work)
    assert "rank 1 died (its process was killed from outside" in message
    assert "last seen at" in message


def test_deadlock_names_its_cycle(cluster, failure, line):
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


def test_a_deadlock_is_told_long_before_the_time_is_up(pair, failure, line):
    def both_wait(comm):
        comm.recv(torch.zeros(3), source=1 - comm.rank)

    message, seconds = failure(pair, both_wait, timeout=60)
    assert message.startswith("ranks 0 and 1 would wait forever.")
    assert "Deadlock: rank 0 waits to receive from rank 1, rank 1 waits to receive from rank 0." in message
    assert line(both_wait, "comm.recv") in message
    assert seconds < 10, "2 s of waiting; the bound leaves room for a busy machine"


def test_a_rank_that_waits_for_one_that_has_returned_is_told_so(pair, failure):
    def wait_for_nobody(comm):
        if comm.rank == 1:
            comm.barrier()

    message, _ = failure(pair, wait_for_nobody, timeout=60)
    assert message.startswith("rank 1 would wait forever.")
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


def test_an_endless_loop_ends_in_time_with_its_line_and_its_calls(cluster, failure):
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


@pytest.mark.labs  # waits for limits
def test_stubborn_ranks_are_killed(pair, failure, line):
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
    assert "started again" in message
    assert seconds < 0.5 + 4


def test_messages_left_behind_by_a_failed_run_do_not_reach_the_next(cluster, failure):
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


def test_a_stream_that_is_left_early_stops_its_ranks(cluster, who):
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


# An interrupt may come between the opening of a file in /proc and the `with` that closes it: then the collector does.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_ctrl_c_stops_all_ranks_and_the_cluster_lives_on(cluster, who):
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


def test_wrong_arguments_are_refused(cluster, who):
    with pytest.raises(TypeError, match="it must be a function"):
        cluster.run("hello")
    with pytest.raises(ValueError, match="timeout is 0"):
        cluster.run(who, timeout=0)
    with pytest.raises(ValueError, match="n is 0; the number of engines"):
        Cluster(n=0)
