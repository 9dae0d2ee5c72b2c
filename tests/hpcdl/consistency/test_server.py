"""The parameter server on simulated ranks: its value, its traffic, its virtual seconds; and what is lost."""

import math

import numpy as np
import pytest
import torch

from hpcdl.comm import RankError, simulate
from hpcdl.consistency import ASP, BSP, Server, Worker, timeline, work

N, STEPS = 7, 6
LR = 0.25


def sgd(params):
    return torch.optim.SGD(params, LR)


def start():
    return torch.arange(N, dtype=torch.float64)


def constant(rank, k):
    """The gradient of a linear loss: it knows no weights, so that sums are exact in any order."""
    return torch.arange(N, dtype=torch.float64) * 2.0 ** (rank % 3) + k


def train(comm, servers=1, staleness=ASP, seconds=1.0, steps=STEPS, snapshots=None, every=1):
    if comm.rank < servers:
        return Server(comm, start(), sgd, servers, staleness, snapshots, every).serve()

    def gradient(w, k):
        comm.compute(seconds)
        return constant(comm.rank, k)

    return work(comm, start(), gradient, steps, servers)


def whole(run, servers):
    return torch.cat([served.w for served in run.results[:servers]])


def expected(workers, steps=STEPS):
    return start() - LR * sum(constant(rank, k) for rank in workers for k in range(steps))


# -- value ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("staleness", [BSP, 1, 3, ASP])
@pytest.mark.parametrize(("servers", "workers"), [(1, 1), (1, 3), (3, 2), (9, 2)])  # 9 servers for 7 elements
def test_each_gradient_is_applied_exactly_once(servers, workers, staleness, seed):
    run = simulate(train, servers + workers, servers, staleness, alpha=0.01, seed=seed, slow={servers: 3.0})
    ranks = range(servers, servers + workers)
    torch.testing.assert_close(whole(run, servers), expected(ranks), rtol=0, atol=0)
    for served in run.results[:servers]:
        assert sorted((u.worker, u.clock) for u in served.log) == [(r, k) for r in ranks for k in range(1, STEPS + 1)]
        assert not served.lost


def quadratic(w, rank, k):
    return (w - rank) * (1 + k % 3) / 4


MAKES = {
    "adagrad": lambda params: torch.optim.Adagrad(params, 0.5),
    "momentum": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=0.1),  # a step too many shows
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_staleness_0_is_serial_descent_on_the_sum_of_the_batches(make):
    def rank(comm):
        if comm.rank == 0:
            return Server(comm, start(), make, 1, BSP).serve().w
        return work(comm, start(), lambda w, k: quadratic(w, comm.rank, k), STEPS)

    w = torch.nn.Parameter(start())
    optimizer = make([w])
    for k in range(STEPS):
        w.grad = sum(quadratic(w.detach(), rank, k) for rank in (1, 2, 3))
        optimizer.step()
    run = simulate(rank, 4, alpha=1.0, slow={2: 4.0}, seed=5)
    torch.testing.assert_close(run.results[0], w.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(run.results[3], w.detach(), rtol=1e-12, atol=1e-12)  # what a worker pulled last


def test_a_worker_reads_what_it_wrote():
    def rank(comm):
        if comm.rank < 2:
            return Server(comm, torch.zeros(3), sgd, 2).serve()
        with Worker(comm, torch.zeros(3), 2) as worker:
            seen = []
            for _ in range(4):
                worker.push(torch.full((3,), 4.0))
                seen.append(worker.pull().tolist())
            return seen

    assert simulate(rank, 3, alpha=1.0).results[2] == [[-1.0 * k] * 3 for k in (1, 2, 3, 4)]


# -- staleness, traffic, time -----------------------------------------------------------------------------------------


def test_staleness_is_what_the_clock_says():
    assert {u.staleness for u in simulate(train, 2).results[0].log} == {0}
    run = simulate(train, 3, 1, ASP, slow={1: 2.25})  # no two end together
    right = timeline([[2.25] * STEPS, [1.0] * STEPS]).staleness()
    for worker in (1, 2):
        assert [u.staleness for u in run.results[0].log if u.worker == worker] == right[worker - 1].tolist()


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_lead_reaches_the_threshold_and_stops(staleness):
    run = simulate(train, 5, 2, staleness, alpha=0.01, slow={2: 50.0})
    for served in run.results[:2]:
        assert max(u.lead for u in served.log) == min(staleness, STEPS - 1)


def starts(trace, worker):
    return [event.start for event in trace if event.rank == worker and event.op == "compute"]


@pytest.mark.parametrize("staleness", [0, 1, 3, math.inf])
def test_workers_begin_when_the_clock_says_to_the_bit(staleness):
    seconds, slow = 1.0, {1: 4.0, 3: 1.5}
    run = simulate(train, 4, 1, staleness, seconds, slow=slow)  # messages cost nothing
    right = timeline([[slow.get(rank, 1.0)] * STEPS for rank in (1, 2, 3)], staleness)
    for worker in (1, 2, 3):
        assert starts(run.trace, worker) == right.start[worker - 1].tolist()


def test_a_step_is_a_request_a_gradient_and_an_answer_for_each_server():
    servers, workers = 2, 3
    run = simulate(train, servers + workers, servers, 2)
    once = (8 + N * 8) * workers + 16 * workers * servers * 3  # two ints of hello, pull and stop; a clock, the weights
    once += 8 * workers * (servers - 1)  # each server sends its clock
    step = workers * (2 * N * 8 + 16 * servers)
    assert sum(run.bytes_sent) == once + STEPS * step
    talk = {(event.rank, event.peer) for event in run.trace if event.op == "send"}
    assert talk == {(a, b) for a in range(5) for b in range(5) if (a < servers) != (b < servers)}


@pytest.mark.labs  # 10 s or more of a thousand threads; how long a hundred steps take is a figure of the benchmark
@pytest.mark.timeout(200)
def test_1024_ranks():
    run = simulate(train, 1024, 1, 3, 1.0, 8, slow={7: 3.0})
    np.testing.assert_array_equal(run.results[0].w, expected(range(1, 1024), 8))
    right = timeline([[3.0 if rank == 7 else 1.0] * 8 for rank in range(1, 1024)], 3)
    assert run.seconds == right.seconds


# -- what is lost -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("staleness", [BSP, 2, ASP])
def test_a_worker_that_fails_is_missed_and_the_others_go_on(staleness, capsys):
    def rank(comm):
        if comm.rank < 2:
            return Server(comm, start(), sgd, 2, staleness).serve()

        def gradient(w, k):
            comm.compute(1.0)
            if comm.rank == 3 and k == 2:
                raise FloatingPointError("the loss is NaN")
            return constant(comm.rank, k)

        if comm.rank != 3:
            return work(comm, start(), gradient, STEPS, 2)
        with pytest.raises(FloatingPointError):
            work(comm, start(), gradient, STEPS, 2)

    run = simulate(rank, 5, alpha=0.01)
    torch.testing.assert_close(whole(run, 2), expected([2, 4]) + expected([3], 2) - start(), rtol=0, atol=0)
    assert [served.lost for served in run.results[:2]] == [{3: "it failed, and said so"}] * 2
    assert "server 1: worker 3 is lost after 2 iterations: it failed" in capsys.readouterr().out


@pytest.mark.parametrize("staleness", [4, ASP])
def test_a_worker_that_falls_silent_is_missed_while_the_others_speak(staleness):
    """Worker 3 hangs for 100 s, and then is through; with a threshold of 4 the others would wait for it so long."""

    def rank(comm, patience):
        if comm.rank == 0:
            return Server(comm, start(), sgd, staleness=staleness, patience=patience).serve()
        worker, steps = Worker(comm, start()), 2 if comm.rank == 3 else 20
        while worker.clock < steps:
            comm.compute(1.0)
            worker.push_and_pull(constant(comm.rank, worker.clock))
        if comm.rank == 3:
            comm.compute(100.0)
        worker.close()
        return comm.clock()

    run = simulate(rank, 4, 2.5, alpha=0.01)
    torch.testing.assert_close(whole(run, 1), expected([1, 2], 20) + expected([3], 2) - start(), rtol=0, atol=0)
    assert run.results[0].lost == {3: "nothing was heard of it for 3.05 s"}
    assert max(run.results[1:3]) < 25
    waited = simulate(rank, 4, math.inf, alpha=0.01).results
    assert (max(waited[1:3]) > 100) == (staleness == 4)
    assert not waited[0].lost


def test_patience_outlives_being_held_and_a_long_gradient():
    """The fast are held for 3 s at a time, the slow one computes for 3 s: no worker is silent for longer."""

    def rank(comm):
        if comm.rank == 0:
            return Server(comm, start(), sgd, patience=3.5, staleness=1).serve()
        return work(comm, start(), lambda w, k: [comm.compute(1.0), constant(comm.rank, k)][1], STEPS)

    run = simulate(rank, 4, alpha=0.01, slow={3: 3.0})
    assert not run.results[0].lost
    torch.testing.assert_close(whole(run, 1), expected([1, 2, 3]), rtol=0, atol=0)


def test_no_patience_is_refused():
    with pytest.raises(RankError, match="patience is 0; give more seconds than the longest gradient takes"):
        simulate(lambda comm: comm.rank or Server(comm, start(), sgd, patience=0), 2)


def test_when_all_workers_are_lost_there_is_one_error():
    def rank(comm):
        if comm.rank == 0:
            with pytest.raises(RuntimeError, match="every worker is lost"):
                Server(comm, start(), sgd).serve()
        else:
            with pytest.raises(ZeroDivisionError):
                work(comm, start(), lambda w, k: 1 / 0, STEPS)

    simulate(rank, 3)


class Mortal(torch.optim.SGD):
    """An optimizer that ends its server at its n-th step."""

    left = 10**9

    def step(self):
        Mortal.left -= 1
        if Mortal.left < 0:
            raise MemoryError("the server's machine is full")
        super().step()


@pytest.mark.parametrize("staleness", [BSP, 1, ASP])
@pytest.mark.parametrize("servers", [1, 2])
def test_dead_server_resumes_from_its_snapshot(servers, staleness, tmp_path):
    def rank(comm):
        if comm.rank < servers:
            make = lambda params: Mortal(params, LR)  # noqa: E731
            return Server(comm, start(), make, servers, staleness, str(tmp_path), every=2).serve()
        return work(comm, start(), lambda w, k: constant(comm.rank, k), STEPS, servers)

    Mortal.left = 2 + 3 * servers
    try:
        with pytest.raises(RankError, match="MemoryError"):
            simulate(rank, servers + 3, seed=1)
    finally:
        Mortal.left = 10**9
    run = simulate(rank, servers + 3, seed=2)
    torch.testing.assert_close(whole(run, servers), expected(range(servers, servers + 3)), rtol=0, atol=0)
    assert sum(len(served.log) for served in run.results[:servers]) < servers * 3 * STEPS  # not from the start


def test_a_snapshot_of_other_ranks_is_refused(tmp_path):
    simulate(train, 3, 1, ASP, 1.0, STEPS, str(tmp_path))
    with pytest.raises(RankError, match=r"of 1 servers, workers \[1, 2\] and 7 elements; .*start as many as before"):
        simulate(train, 4, 1, ASP, 1.0, STEPS, str(tmp_path))


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda comm: Server(comm, torch.zeros(2, 2), sgd), "one flat tensor"),
        (lambda comm: Server(comm, start(), sgd, 2), "servers is 2 of 2 ranks"),
        (lambda comm: Server(comm, start(), sgd, staleness=-1), "staleness is -1"),
        (lambda comm: Server(comm, start(), sgd, snapshots="x", every=0), "every is 0"),
        (lambda comm: Worker(comm, torch.zeros(2, 2)), "one flat tensor"),
        (lambda comm: Worker(comm, start()), "rank 0 is a server"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_first_message(make, said):
    def rank(comm):
        if comm.rank == 0:
            with pytest.raises(ValueError, match=said):
                make(comm)

    simulate(rank, 2)
