"""Collectives beside a rank's own work: in order, apart from its own messages, in virtual time and over MPI."""

import pytest
import torch

from hpcdl.collectives import ALL_REDUCE, ring_all_reduce
from hpcdl.comm import CommError, DeadlockError, Group, RankError, TracingComm, simulate


def beside(comm, work=lambda comm: None):
    """Three sums in the background while the rank passes messages of its own round the ring; all that came."""
    lane = comm.background()
    sums = [torch.full((5,), float(comm.rank + i)) for i in range(3)]
    own, came = torch.tensor([comm.rank]), torch.tensor([-1])
    for x in sums:
        lane.start(lambda comm, x=x: ring_all_reduce(x, comm))
        work(comm)
        comm.sendrecv(own, (comm.rank + 1) % comm.size, came, (comm.rank - 1) % comm.size)
    lane.wait()
    lane.close()
    return [x.tolist() for x in sums], came.item()


def expected(p, rank):
    return [[float(sum(range(p)) + p * i)] * 5 for i in range(3)], (rank - 1) % p


@pytest.mark.parametrize("wrap", [lambda comm: comm, TracingComm], ids=["simulated", "tracing"])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_sums_in_the_background_meet_no_messages_of_the_ranks_own(p, wrap):
    assert simulate(lambda comm: beside(wrap(comm)), p).results == [expected(p, rank) for rank in range(p)]


def test_a_group_has_a_background_of_its_own():
    run = simulate(lambda comm: beside(Group(comm, [r for r in range(5) if r % 2 == comm.rank % 2])), 5)
    assert [sums[0][0] for sums, _ in run.results] == [3.0, 1.0, 3.0, 1.0, 3.0]


def test_virtual_time_passes_on_both_clocks_at_once():
    def rank(comm):
        lane, begin = comm.background(), comm.clock()
        x = torch.zeros(100)
        comm.compute(1.0)
        lane.start(lambda comm: ring_all_reduce(x, comm))  # 2 messages of 200 bytes: 2 (0.5 + 200 * 0.01) s
        comm.compute(2.0)
        assert comm.clock() - begin == 3.0
        lane.wait()
        return comm.clock() - begin

    assert simulate(rank, 2, alpha=0.5, beta=0.01).results == [6.0, 6.0]


def test_the_trace_has_what_happened_in_the_background():
    def rank(comm):
        traced = TracingComm(comm)
        lane = traced.background()
        lane.start(lambda comm: ring_all_reduce(torch.zeros(8), comm))
        lane.wait()
        return [event.op for event in traced.trace]

    assert simulate(rank, 2).results == [["send", "recv", "accumulate", "send", "recv"]] * 2


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_every_collective_runs_in_the_background(name):
    def rank(comm):
        lane, x = comm.background(), torch.tensor([float(comm.rank)])
        lane.start(lambda comm: ALL_REDUCE[name](x, comm))
        lane.wait()
        return x.item()

    assert simulate(rank, 5).results == [10.0] * 5


def test_what_a_call_raises_names_its_rank():
    def rank(comm):
        lane = comm.background()
        lane.start(lambda comm: 1 / 0 if comm.rank == 1 else comm.recv(torch.zeros(1), 1))
        lane.wait()

    with pytest.raises(RankError, match="rank 1 raised ZeroDivisionError"):
        simulate(rank, 2)


def test_a_deadlock_in_the_background_is_explained():
    def rank(comm):
        lane = comm.background()
        lane.start(lambda comm: comm.recv(torch.zeros(1), 1 - comm.rank))
        lane.wait()

    with pytest.raises(DeadlockError) as caught:
        simulate(rank, 2)
    assert "rank 0 waits in wait(its background)" in str(caught.value)
    assert "rank 1's background waits in recv(source=0" in str(caught.value)


def test_a_machines_own_collective_has_no_place_in_the_background():
    def rank(comm):
        lane = comm.background()
        lane.start(lambda comm: comm.all_reduce(torch.zeros(1)))
        lane.wait()

    with pytest.raises((CommError, NotImplementedError), match="messages only"):
        simulate(rank, 2)


PROGRAM = """
import gc
import threading
import time
import weakref
import torch
from hpcdl.comm import CommError, MPIComm

torch.set_num_threads(1)
comm = MPIComm(timeout=50)
for work in (lambda comm: None, lambda comm: time.sleep(0.02 * comm.rank)):
    assert beside(comm, work) == expected(comm.size, comm.rank)

# What a call raises comes out of wait(), and the lane goes on.
lane = comm.background()
lane.start(lambda comm: 1 / 0)
try:
    lane.wait()
    raise SystemExit("no error")
except ZeroDivisionError:
    pass
x = torch.ones(3)
lane.start(lambda comm: ring_all_reduce(x, comm))
lane.wait()
assert x.tolist() == [comm.size] * 3

# What no rank will send is given up, and no thread stays.
lane.start(lambda comm: comm.recv(torch.zeros(1), comm.rank))
time.sleep(0.05)
lane.close()
deadline = time.monotonic() + 30
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
assert threading.active_count() == 1
comm.barrier()
print("right", flush=True)
import os
os._exit(0)  # a message that was never sent is still posted
"""


@pytest.mark.labs  # starts MPI
@pytest.mark.mpi
def test_over_mpi_the_background_is_a_thread(mpiexec):
    code, printed = mpiexec(
        3, "-c", f"import runpy; globals().update(runpy.run_path({__file__!r}))\n{PROGRAM}", seconds=200
    )
    assert code == 0, printed
    assert printed.count("right") == 3, printed  # the launcher may join the lines of two ranks
