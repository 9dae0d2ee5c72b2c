"""wait_any returns the first complete request, on every machine."""

import pytest
import torch

from hpcdl.comm import DeadlockError, Group, TracingComm, simulate

WRAPS = {"simulated": lambda comm: comm, "tracing": TracingComm, "group": lambda comm: Group(comm, range(comm.size))}
EVERY = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)


def serve(comm, messages):
    """A server: one request per worker, renewed when it came; (worker, number) in the order of arrival."""
    outs = [torch.zeros(1, dtype=torch.int64) for _ in range(1, comm.size)]
    requests = [comm.irecv(out, worker) for worker, out in enumerate(outs, 1)]
    came, left = [], [messages] * len(outs)
    while sum(left):
        i = comm.wait_any(requests)
        came.append((i + 1, outs[i].item()))
        left[i] -= 1
        if left[i]:
            requests[i] = comm.irecv(outs[i], i + 1)
    return came


def work(comm, messages, seconds):
    for number in range(messages):
        comm.compute(seconds)
        comm.send(torch.tensor([number]), 0)


@EVERY
def test_a_server_hears_its_workers_in_the_order_of_virtual_time(wrap):
    def rank(comm):
        comm = wrap(comm)
        if comm.rank == 0:
            return serve(comm, 3), comm.clock()
        return work(comm, 3, 10.0 / comm.rank)  # rank 1 every 10 s, rank 2 every 5, rank 3 every 3.33

    came, clock = simulate(rank, 4, alpha=0.125).results[0]
    assert came == [(3, 0), (2, 0), (3, 1), (1, 0), (2, 1), (3, 2), (2, 2), (1, 1), (1, 2)]
    assert clock == pytest.approx(30.375)


def test_short_message_may_overtake_a_long_one():
    def rank(comm):
        if comm.rank == 0:
            requests = [comm.irecv(torch.zeros(1000), 1), comm.irecv(torch.zeros(1), 2)]
            order = [comm.wait_any(requests), comm.clock(), comm.wait_any(requests), comm.clock()]
            return order
        comm.compute(float(comm.rank == 2))
        return comm.send(torch.zeros(1000 if comm.rank == 1 else 1), 0)

    # Both share rank 0's receive port, so the short one waits there; from the outbox nothing holds it up.
    def outbox(comm):
        if comm.rank == 0:
            requests = [comm.irecv(torch.zeros(1000), 1), comm.isend(torch.zeros(1), 2)]
            return [comm.wait_any(requests), comm.clock(), comm.wait_any(requests), comm.clock()]
        comm.compute(float(comm.rank == 2))
        return comm.recv(torch.zeros(1), 0) if comm.rank == 2 else comm.send(torch.zeros(1000), 0)

    assert simulate(rank, 3, beta=0.25).results[0] == [0, 1000.0, 1, 1001.0]
    assert simulate(outbox, 3, beta=0.25).results[0] == [1, 2.0, 0, 1000.0]


def test_ties_follow_the_seed():
    def rank(comm):
        if comm.rank == 0:
            requests = [comm.irecv(torch.zeros(0), source) for source in (3, 1, 4, 2)]
            comm.compute(1.0)
            return [requests[comm.wait_any(requests)].peer for _ in requests]
        return comm.send(torch.zeros(0), 0)

    assert simulate(rank, 5).results[0] == [1, 2, 3, 4]
    orders = [tuple(simulate(rank, 5, seed=seed).results[0]) for seed in range(1, 9)]
    assert len(set(orders)) > 2
    assert orders == [tuple(simulate(rank, 5, seed=seed).results[0]) for seed in range(1, 9)]


@EVERY
def test_what_was_waited_for_does_not_count_again(wrap):
    def rank(comm):
        comm = wrap(comm)
        if comm.rank:
            return comm.send(torch.zeros(1), 0)
        requests = [comm.irecv(torch.zeros(1), source) for source in (1, 2)]
        requests[0].wait()
        assert comm.wait_any(requests) == 1
        with pytest.raises(ValueError, match="all 2 requests have been waited for; post a new one"):
            comm.wait_any(requests)
        requests[1].wait()  # at once
        return None

    simulate(rank, 3)


def test_a_wait_for_any_that_never_ends_is_named_in_the_report():
    def rank(comm):
        if comm.rank == 0:
            comm.wait_any([comm.irecv(torch.zeros(1), 1), comm.irecv(torch.zeros(1), 2, tag=7)])

    with pytest.raises(DeadlockError, match=r"rank 0 waits in wait_any\(source=1, source=2, tag=7\) at .*wait_any"):
        simulate(rank, 3)


def test_the_trace_has_the_message_when_it_was_waited_for():
    def rank(comm):
        traced = TracingComm(comm)
        if comm.rank == 0:
            traced.wait_any([traced.irecv(torch.zeros(2), 1, tag=5)])
        else:
            traced.wait_any([traced.isend(torch.zeros(2), 0, tag=5)])
        return [tuple(event) for event in traced.trace]

    first, second = simulate(rank, 2, alpha=1.0).results
    assert first == [(0.0, 1.0, 0, "recv", 1, 8, 5)]
    assert second == [(0.0, 1.0, 1, "send", 0, 8, 5)]


MPI = r"""
import signal
import sys
import time
import torch
from hpcdl.comm import CommError, Group, MPIComm, TracingComm
from hpcdl.comm.mpi.cells import SHORTEST

torch.set_num_threads(1)
comm = MPIComm(timeout=20)

def expect(kind, said, call, *args):
    try:
        call(*args)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"{said}: nothing was raised")

for machine in (comm, TracingComm(comm), Group(comm, range(comm.size))):
    if comm.rank == 0:
        came = serve(machine, 20)
        assert sorted(came) == [(worker, number) for worker in range(1, comm.size) for number in range(20)]
    else:
        for number in range(20):
            machine.send(torch.tensor([number]), 0)

# Long messages, through cells and from memory that is lent: a send is complete when its receiver has read it.
for lent in (False, True):
    for round in range(4):
        x = comm.empty(SHORTEST) if lent else torch.empty(SHORTEST)
        if comm.rank == 0:
            outs = [torch.zeros(SHORTEST) for _ in range(1, comm.size)]
            requests = [comm.irecv(out, worker) for worker, out in enumerate(outs, 1)]
            for _ in requests:
                i = comm.wait_any(requests)
                assert (outs[i] == i + 1).all()
        else:
            assert comm.wait_any([comm.isend(x.fill_(comm.rank), 0)]) == 0
        comm.barrier()

if comm.rank == 0:
    requests = [comm.irecv(torch.zeros(1), 1), comm.irecv(torch.zeros(1), 1, tag=9)]
    comm.timeout = 0.3
    seen = []  # what a report of deadlocks would be told: not to be taken for a rank that waits for one other
    signal.signal(signal.SIGALRM, lambda *_: seen.append(comm.situation()))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    expect(TimeoutError, "rank 0 waited 0.3 s in wait_any(source=1, source=1, tag=9)", comm.wait_any, requests)
    assert seen[0]["text"] == "wait_any(source=1, source=1, tag=9)" and not seen[0]["alone"], seen
    comm.timeout = 20
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    begin = time.monotonic()
    expect(KeyboardInterrupt, "", comm.wait_any, requests)
    assert time.monotonic() - begin < 5
    comm.barrier()
    assert comm.wait_any(requests) == 1
    comm.barrier()
    expect(CommError, "rank 0: irecv(source=1).wait(): out has 4 bytes, the message", comm.wait_any, requests)
else:
    comm.barrier()
    if comm.rank == 1:
        comm.send(torch.zeros(1), 0, tag=9)
    comm.barrier()
    if comm.rank == 1:
        comm.send(torch.zeros(3), 0)
comm.barrier()
sys.stdout.write(f"rank {comm.rank} is right\n")
"""


@pytest.mark.labs  # starts MPI and waits for limits
@pytest.mark.mpi
def test_over_mpi_it_is_polled_so_that_limits_and_interrupts_raise(mpiexec):
    _, printed = mpiexec(3, "-c", f"import runpy; globals().update(runpy.run_path({__file__!r}))\n{MPI}")
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(3)], printed
