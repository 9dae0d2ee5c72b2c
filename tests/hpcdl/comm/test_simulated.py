"""The simulated machine: what arrives, when in virtual time, and how a run ends."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.collectives import hierarchical_all_reduce, naive_all_reduce, ring_all_reduce
from hpcdl.comm import CommError, simulate
from hpcdl.cost import collectives as cost


def ring_of_ranks(comm, steps=1):
    """Pass a number round the ring; every rank ends with the one of the rank `steps` before it."""
    x, out = torch.tensor([float(comm.rank)]), torch.empty(1)
    for _ in range(steps):
        comm.sendrecv(x, (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)
        x.copy_(out)
    return x.item()


@pytest.mark.parametrize("p", [*range(1, 10), 100])
def test_results_come_in_the_order_of_the_ranks(p):
    assert simulate(lambda comm: (comm.rank, comm.size), p).results == [(rank, p) for rank in range(p)]
    assert simulate(ring_of_ranks, p).results == [(rank - 1) % p for rank in range(p)]


def test_messages_of_one_pair_and_tag_arrive_in_order_and_tags_do_not_mix():
    def rank(comm):
        if comm.rank == 0:
            requests = [comm.isend(torch.tensor([value]), 1, tag=value % 2) for value in range(6)]
            for request in requests:
                request.wait()
            return None
        got = torch.zeros(6, dtype=torch.int64)
        for place, tag in ((0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (5, 0)):
            comm.recv(got[place : place + 1], 0, tag=tag)
        return got.tolist()

    assert simulate(rank, 2).results[1] == [1, 3, 5, 0, 2, 4]


def test_a_send_waits_for_its_receiver_and_takes_alpha_plus_n_beta():
    def rank(comm):
        if comm.rank == 0:
            comm.send(torch.zeros(250), 1)
        else:
            comm.compute(5.0)
            comm.recv(torch.zeros(250), 0)
        return comm.clock()

    run = simulate(rank, 2, alpha=0.5, beta=0.001)
    assert run.results == pytest.approx([6.5, 6.5])
    assert run.seconds == pytest.approx(6.5)
    assert run.bytes_sent == [1000, 0]


def test_rank_receives_one_message_at_a_time():
    def many_to_one(comm):
        x = torch.zeros(250)
        if comm.rank:
            comm.send(x, 0)
        else:
            requests = [comm.irecv(torch.zeros(250), source) for source in range(1, comm.size)]
            for request in requests:
                request.wait()

    assert simulate(many_to_one, 5, alpha=0.5, beta=0.001).seconds == pytest.approx(4 * 1.5)
    assert simulate(ring_of_ranks, 5, alpha=0.5, beta=0.25).seconds == pytest.approx(1.5), "all links at once"


def test_the_first_rank_in_virtual_time_is_served_first():
    def rank(comm):
        if comm.rank:
            comm.compute(10.0 - comm.rank)
            comm.send(torch.zeros(1), 0)
            return comm.clock()
        for request in [comm.irecv(torch.zeros(1), source) for source in range(1, comm.size)]:
            request.wait()
        return None

    for seed in range(4):
        finished = simulate(rank, 4, alpha=1.0, seed=seed).results[1:]
        assert finished == pytest.approx([10.0, 9.0, 8.0]), "rank 3 was ready at 7, rank 1 at 9"


@pytest.mark.parametrize("p", range(1, 10))
def test_the_ring_costs_what_the_formula_says(p):
    n, alpha, beta, gamma = 4 * 9 * 8 * 7 * 5, 1e-5, 1e-9, 1e-10  # divisible by every p
    run = simulate(lambda comm: ring_all_reduce(torch.ones(n), comm), p, alpha=alpha, beta=beta, gamma=gamma)
    nbytes = 4 * n
    formula = 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta + (p - 1) / p * nbytes * gamma
    assert run.seconds == pytest.approx(formula)
    assert run.bytes_sent == [2 * (p - 1) * nbytes // p] * p


def test_links_within_a_node_have_a_price_of_their_own():
    def pair(comm, a, b):
        x = torch.zeros(250)
        if comm.rank == a:
            comm.send(x, b)
        elif comm.rank == b:
            comm.recv(x, a)

    nodes = {"alpha": 0.5, "beta": 0.001, "per_node": 2, "within": (0.1, 0.0001)}
    assert simulate(pair, 5, 0, 1, **nodes).seconds == pytest.approx(0.2)
    assert simulate(pair, 5, 1, 2, **nodes).seconds == pytest.approx(1.5)
    assert simulate(pair, 5, 4, 0, **nodes).seconds == pytest.approx(1.5)
    barriers = [simulate(lambda comm: comm.barrier(), p, **nodes).seconds for p in (2, 4)]
    assert barriers == pytest.approx([0.1, 2 * 0.5])


@pytest.mark.parametrize(("p", "per_node"), [(8, 4), (7, 3), (12, 4), (3, 5)])
def test_hierarchical_all_reduce_costs_its_formula(p, per_node):
    n, link, within = 3 * 4 * 5 * 7, {"alpha": 1e-5, "beta": 1e-9, "gamma": 1e-10}, (1e-6, 1e-11)
    run = simulate(
        lambda comm: hierarchical_all_reduce(torch.ones(n), comm, per_node=per_node),
        p,
        **link,
        per_node=per_node,
        within=within,
    )
    formula = cost.hierarchical(p, 4 * n, *link.values(), per_node=per_node, within=within)
    assert run.seconds == pytest.approx(formula)


def test_the_naive_all_reduce_loads_the_links_of_rank_0():
    p, n, alpha, beta, gamma = 5, 1000, 1e-5, 1e-9, 1e-10
    run = simulate(lambda comm: naive_all_reduce(torch.ones(n), comm), p, alpha=alpha, beta=beta, gamma=gamma)
    assert run.seconds == pytest.approx(2 * (p - 1) * (alpha + 4 * n * beta) + (p - 1) * 4 * n * gamma)


def test_the_machines_own_collectives_compute_and_cost_log_p_steps():
    def rank(comm):
        x = torch.full((10,), float(comm.rank + 1))
        comm.all_reduce(x)
        y = torch.full((10,), float(comm.rank))
        comm.broadcast(y, root=2)
        comm.barrier()
        return x[0].item(), y[0].item()

    run = simulate(rank, 5, alpha=1.0)
    assert run.results == [(15.0, 2.0)] * 5
    assert run.seconds == pytest.approx(3 * 3)
    assert [event.op for event in run.trace if event.rank == 4] == ["all_reduce", "broadcast", "barrier"]


@settings(max_examples=25, deadline=None)
@given(p=st.integers(2, 6), seed=st.integers(0, 100), data=st.data())
def test_any_pairing_of_ranks_exchanges_the_right_values_in_any_order(p, seed, data):
    rounds = data.draw(st.lists(st.permutations(range(p)), min_size=1, max_size=5))

    def rank(comm):
        got = []
        for order in rounds:
            place, out = order.index(comm.rank), torch.empty(1)
            after, before = order[(place + 1) % p], order[place - 1]
            comm.sendrecv(torch.tensor([float(comm.rank)]), after, out, before)
            got.append(out.item() == before)
        return all(got)

    run = simulate(rank, p, seed=seed, alpha=1.0)
    assert all(run.results)
    again = simulate(rank, p, seed=seed, alpha=1.0)
    assert again.trace == run.trace, "the same seed replays the same run"
    assert simulate(rank, p, seed=seed + 1, alpha=1.0).seconds == run.seconds


def test_no_thread_is_left_however_a_run_ends():
    before = threading.active_count()
    for f in (ring_of_ranks, lambda comm: comm.recv(torch.zeros(1), 0), lambda comm: 1 / comm.rank):
        with suppress(CommError):
            simulate(f, 40)
    assert threading.active_count() == before


def test_ctrl_c_ends_a_rank_in_an_endless_loop():
    def rank(comm):
        while True:
            pass

    before = threading.active_count()
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate(rank, 2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert threading.active_count() == before


STOPPED = """
import os, signal, sys, threading, time
from hpcdl.comm import simulate

def rank(comm):
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    while True:
        time.sleep(seconds)

for seconds in (0, 3):  # in the long one the exception waits until the call is over
    try:
        simulate(rank, 2)
    except KeyboardInterrupt:
        sys.setprofile(lambda *_: None)
        (lambda: None)()
        sys.setprofile(None)
        print("went on")
"""


def test_a_run_that_was_stopped_leaves_functions_that_a_profile_can_watch():
    done = subprocess.run([sys.executable, "-c", STOPPED], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["went on", "went on", ""]


def test_messages_pass_through_hooks_of_autograd():
    def rank(comm):
        w = torch.full((2,), 1.0, requires_grad=True)
        w.register_hook(lambda grad: ring_all_reduce(grad, comm))
        (w * (comm.rank + 1)).sum().backward()
        return w.grad.tolist()

    assert simulate(rank, 4).results == [[10.0, 10.0]] * 4


def test_a_ring_over_many_ranks_is_simulated_in_seconds():
    begin = time.process_time()
    run = simulate(lambda comm: ring_all_reduce(torch.ones(256), comm), 128, alpha=1e-6)
    seconds = time.process_time() - begin
    assert len([event for event in run.trace if event.op == "send"]) == 2 * 127 * 128
    assert seconds < 5, "1 s on the machine it was written on; the bound leaves room for a busy one"
