"""Every all-reduce of the registry: right on any ranks and elements, the same bits everywhere, no buffering."""

import math

import numpy as np
import pytest
import torch

from hpcdl.collectives import ALL_REDUCE, hierarchical_all_reduce, parameter_server_all_reduce
from hpcdl.comm import simulate

RANKS = [*range(1, 10), 16, 33]
EVERY = pytest.mark.parametrize("name", ALL_REDUCE)


def inputs(p, n, dtype=torch.float32):
    """Numbers of very different size, so that an order of summation shows in the bits."""
    generator = torch.Generator().manual_seed(1000 * p + n)
    x = torch.randn(p, n, generator=generator, dtype=torch.float64) * 10.0 ** torch.arange(p).remainder(4)[:, None]
    return x.to(dtype)


def run(f, x, seed=0, **machine):
    """`f` on one row of `x` per rank; returns the simulation, whose results are what became of the rows."""

    def rank(comm):
        row = x[comm.rank].clone()
        assert f(row, comm) is None
        return row

    return simulate(rank, len(x), seed=seed, **machine)


@EVERY
@pytest.mark.parametrize("p", RANKS)
def test_every_rank_gets_the_sum_to_the_same_bit(name, p):
    for n in sorted({1, max(1, p - 1), p, 1000, 100_003}):
        x = inputs(p, n)
        results = run(ALL_REDUCE[name], x).results
        torch.testing.assert_close(results[0].double(), x.double().sum(0), rtol=1e-5, atol=1e-2)
        assert all(torch.equal(result, results[0]) for result in results), f"n = {n}"


@EVERY
def test_the_order_of_arrival_does_not_change_a_bit(name):
    x = inputs(7, 1001)
    first = run(ALL_REDUCE[name], x, alpha=1e-6, beta=1e-9).results[0]
    assert all(torch.equal(run(ALL_REDUCE[name], x, seed=seed).results[0], first) for seed in range(1, 6))


@EVERY
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_dtypes_and_shapes_are_summed_in_their_own_precision(name, dtype):
    x = (torch.arange(3 * 4 * 5).view(3, 4, 5) % 7).to(dtype)  # small integers: exact in every dtype and order
    for result in run(ALL_REDUCE[name], x).results:
        assert torch.equal(result, x.sum(0, dtype=dtype))


@EVERY
def test_a_parameter_that_requires_grad_is_summed_in_place(name):
    def rank(comm):
        weight = torch.nn.Parameter(torch.full((5,), float(comm.rank)))
        ALL_REDUCE[name](weight, comm)
        return weight

    for weight in simulate(rank, 5).results:
        assert weight.is_leaf
        assert weight.tolist() == [10.0] * 5


@EVERY
def test_a_tensor_that_is_not_contiguous_is_refused_by_name(name):
    with pytest.raises(RuntimeError, match=r"shape \(3, 2\) is not contiguous"):
        simulate(lambda comm: ALL_REDUCE[name](torch.ones(2, 3).T, comm), 3)


BAD = {
    "a list": ([1.0, 2.0], TypeError, "x is a list"),
    "an array": (np.ones(3), TypeError, "x is a ndarray"),
    "a number": (1.0, TypeError, "x is a float"),
    "a strided tensor": (torch.ones(2, 3).T, ValueError, "not contiguous"),
    "a tensor elsewhere": (torch.ones(3, device="meta"), ValueError, "x is on meta"),
    "a conjugate view": (torch.ones(3, dtype=torch.complex64).conj(), ValueError, r"use x\.resolve_conj\(\)"),
}


@EVERY
@pytest.mark.parametrize("bad", BAD)
def test_bad_tensors_are_refused_before_any_message(name, bad):
    x, kind, said = BAD[bad]

    def rank(comm):
        with pytest.raises(kind, match=rf"rank {comm.rank}: {name}_all_reduce: .*{said}"):
            ALL_REDUCE[name](x, comm)

    assert not simulate(rank, 3).trace


@EVERY
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_each_rank_may_bring_its_x_with_a_weight(name, p):
    x, weights = inputs(p, 100, torch.float64), torch.arange(1.0, p + 1, dtype=torch.float64) / 8
    results = run(lambda x, comm: ALL_REDUCE[name](x, comm, weights[comm.rank].item()), x).results
    torch.testing.assert_close(results[0], (weights[:, None] * x).sum(0))
    assert all(torch.equal(result, results[0]) for result in results)


@EVERY
def test_ranks_that_disagree_about_the_size_are_told_so(name):
    with pytest.raises(RuntimeError, match="same dtype and number of elements"):
        simulate(lambda comm: ALL_REDUCE[name](torch.ones(40 + 40 * comm.rank), comm), 3)


# What each costs: n bytes and p chosen so that all pieces are equal.

ALPHA, BETA, GAMMA = 1e-5, 1e-9, 1e-10


def seconds(name, p, elements):
    return run(ALL_REDUCE[name], torch.ones(p, elements), alpha=ALPHA, beta=BETA, gamma=GAMMA).seconds


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32])
def test_virtual_time_is_the_formula_of_the_docstring(p):
    elements = 32 * 48
    n, lg, k, g = 4 * elements, int(math.log2(p)), min(p, 4), max(1, p // 4)
    message, added = ALPHA + n * BETA, n * GAMMA
    expected = {
        "naive": 2 * (p - 1) * message + (p - 1) * added,
        "ring": 2 * (p - 1) * ALPHA + (p - 1) / p * (2 * n * BETA + added),
        "tree": lg * (2 * message + added),
        "recursive_doubling": lg * (message + added),
        "rabenseifner": 2 * lg * ALPHA + (p - 1) / p * (2 * n * BETA + added),
        "parameter_server": 2 * (p - 1) * message + (p - 1) * added,
        "hierarchical": math.log2(k) * (2 * message + added)
        + 2 * (g - 1) * ALPHA
        + (g - 1) / g * (2 * n * BETA + added),
    }
    assert expected.keys() == ALL_REDUCE.keys(), "write the seconds of a new one by hand"
    for name, formula in expected.items():
        assert seconds(name, p, elements) == pytest.approx(formula, rel=1e-9), name


@pytest.mark.parametrize("name", ["recursive_doubling", "rabenseifner"])
def test_folded_ranks_cost_two_messages(name):
    n = 4 * 960
    fold = 2 * (ALPHA + n * BETA) + n * GAMMA
    for p, q in [(3, 2), (5, 4), (7, 4), (9, 8), (33, 32)]:
        assert seconds(name, p, 960) == pytest.approx(seconds(name, q, 960) + fold, rel=1e-9)


@EVERY
def test_the_bytes_on_the_wire_are_those_of_the_algorithm(name):
    p, n = 8, 4 * 960
    sent = run(ALL_REDUCE[name], torch.ones(p, 960)).bytes_sent
    each = {
        "naive": [7 * n] + [n] * 7,
        "ring": [14 * n // 8] * 8,
        "tree": [3 * n, 3 * n, 2 * n, 2 * n, n, n, n, n],
        "recursive_doubling": [3 * n] * 8,
        "rabenseifner": [14 * n // 8] * 8,
        "parameter_server": [7 * n] + [n] * 7,
        "hierarchical": [3 * n, 2 * n, n, n, 3 * n, 2 * n, n, n],
    }
    assert name in each, f"write the bytes that each rank sends in {name} by hand"
    assert sent == each[name]


# Parameter server


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_any_number_of_servers_gives_the_same_sum_everywhere(p):
    for servers in range(1, p + 1):
        for n in (1, 7, 1000):
            x = inputs(p, n, torch.float64)
            results = run(lambda x, comm, k=servers: parameter_server_all_reduce(x, comm, servers=k), x).results
            torch.testing.assert_close(results[0], x.sum(0))
            assert all(torch.equal(result, results[0]) for result in results)


def test_servers_divide_the_bytes():
    p, n = 8, 4 * 960
    for k in (1, 2, 4, 8):
        f = lambda x, comm, k=k: parameter_server_all_reduce(x, comm, servers=k)  # noqa: E731
        time = run(f, torch.ones(p, 960), alpha=ALPHA, beta=BETA, gamma=GAMMA).seconds
        assert time == pytest.approx((p - 1) * (2 * ALPHA + 2 * n / k * BETA + n / k * GAMMA), rel=1e-9)
    assert time == pytest.approx(seconds("ring", p, 960), rel=1e-9)


def test_only_servers_send_to_those_who_are_no_servers():
    trace = run(lambda x, comm: parameter_server_all_reduce(x, comm, servers=2), torch.ones(6, 10)).trace
    assert {min(event.rank, event.peer) for event in trace if event.op == "send"} == {0, 1}


@pytest.mark.parametrize("servers", [0, -1, 4])
def test_a_server_that_is_no_rank_is_refused(servers):
    with pytest.raises(RuntimeError, match=rf"servers is {servers}; .* 1 to 3"):
        simulate(lambda comm: parameter_server_all_reduce(torch.ones(3), comm, servers=servers), 3)


# Hierarchical


@pytest.mark.parametrize("p", [1, 2, 5, 8, 9])
def test_any_size_of_node_gives_the_same_sum_everywhere(p):
    for per_node in range(1, p + 2):
        for n in (1, 7, 1000):
            x = inputs(p, n, torch.float64)
            results = run(lambda x, comm, k=per_node: hierarchical_all_reduce(x, comm, per_node=k), x).results
            torch.testing.assert_close(results[0], x.sum(0))
            assert all(torch.equal(result, results[0]) for result in results)


def test_only_first_ranks_of_nodes_talk_to_other_nodes():
    trace = run(lambda x, comm: hierarchical_all_reduce(x, comm, per_node=3), torch.ones(8, 60)).trace
    between = [event for event in trace if event.op == "send" and event.rank // 3 != event.peer // 3]
    assert {event.rank for event in between} == {0, 3, 6}
    assert sum(event.nbytes for event in between) == 4 * 240  # 2(g-1) n in all: the ring over three nodes


def test_a_node_without_ranks_is_refused():
    with pytest.raises(RuntimeError, match="per_node is 0; a node has one rank or more"):
        simulate(lambda comm: hierarchical_all_reduce(torch.ones(3), comm, per_node=0), 3)
