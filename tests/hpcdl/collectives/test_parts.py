"""Broadcast, reduce, reduce-scatter and all-gather, each on any number of ranks, roots and elements."""

import pytest
import torch

from hpcdl.collectives import (
    all_gather,
    broadcast,
    fast_ring_all_reduce,
    reduce,
    reduce_scatter,
    ring_all_reduce,
    tree_all_reduce,
)
from hpcdl.comm import Group, TracingComm, simulate

RANKS = [*range(1, 10), 16, 33]


def rows(p, n):
    return torch.randn(p, n, generator=torch.Generator().manual_seed(p * n), dtype=torch.float64)


def run(f, x, **machine):
    def rank(comm):
        row = x[comm.rank].clone()
        f(row, comm)
        return row

    return simulate(rank, len(x), **machine)


@pytest.mark.parametrize("p", RANKS)
def test_broadcast_copies_any_root_to_all_in_log_p_rounds(p):
    x = rows(p, 5)
    for root in {0, p // 2, p - 1}:
        simulation = run(lambda x, comm, root=root: broadcast(x, comm, root), x, alpha=1.0)
        assert all(torch.equal(result, x[root]) for result in simulation.results)
        assert simulation.seconds == (p - 1).bit_length()
        assert sum(simulation.bytes_sent) == (p - 1) * 5 * 8


@pytest.mark.parametrize("p", RANKS)
def test_reduce_sums_on_any_root_in_log_p_rounds(p):
    x = rows(p, 5)
    for root in {0, p // 2, p - 1}:
        simulation = run(lambda x, comm, root=root: reduce(x, comm, root), x, alpha=1.0)
        torch.testing.assert_close(simulation.results[root], x.sum(0))
        assert simulation.seconds == (p - 1).bit_length()
        assert sum(simulation.bytes_sent) == (p - 1) * 5 * 8


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("n", [1, 4, 1000])
def test_reduce_scatter_leaves_rank_r_with_chunk_r_of_the_sum(p, n):
    x = rows(p, n)

    def rank(comm):
        return reduce_scatter(x[comm.rank].clone(), comm)

    for mine, expected in zip(simulate(rank, p).results, x.sum(0).tensor_split(p), strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 16, 17, 100, 1003])
def test_a_ring_of_short_messages_moves_the_same_bytes_to_the_same_sum(p, n):
    x = rows(p, n).mul(100).round()  # whole numbers: the same sum in every order

    def rank(comm, segment):
        comm.segment = segment
        mine = x[comm.rank].clone()
        fast_ring_all_reduce(mine, comm)
        return mine

    whole, short = (simulate(rank, p, segment) for segment in (None, 64))
    assert all(torch.equal(result, x.sum(0)) for result in (*whole.results, *short.results))
    assert sum(whole.bytes_sent) == sum(short.bytes_sent)
    assert max([0, *(event.nbytes for event in short.trace if event.op == "send")]) <= 64
    assert len([event for event in short.trace if event.op == "send"]) == 2 * p * (p - 1) * -(-n * 8 // (p * 64))


@pytest.mark.parametrize("wrap", [lambda comm: comm, TracingComm, lambda comm: Group(comm, range(comm.size))])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("ring", [ring_all_reduce, fast_ring_all_reduce])
def test_a_ring_weights_what_each_rank_brings_while_it_adds(ring, p, wrap):
    x, weights = rows(p, 100), torch.arange(1.0, p + 1) / 8

    def rank(comm):
        mine = x[comm.rank].clone()
        ring(mine, wrap(comm), weights[comm.rank].item())
        return mine

    for result in simulate(rank, p).results:
        torch.testing.assert_close(result, (weights[:, None] * x).sum(0))


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("n", [1, 4, 1000])
def test_all_gather_takes_chunk_r_from_rank_r(p, n):
    x = rows(p, n)
    expected = torch.cat([row.tensor_split(p)[rank] for rank, row in enumerate(x)])
    assert all(torch.equal(result, expected) for result in run(all_gather, x).results)


@pytest.mark.parametrize("f", [broadcast, reduce])
def test_a_root_that_is_no_rank_is_refused(f):
    with pytest.raises(RuntimeError, match="root is 3; ranks are 0 to 2"):
        simulate(lambda comm: f(torch.ones(2), comm, 3), 3)


# Group


def test_groups_work_side_by_side_and_renumber_their_ranks():
    def rank(comm):
        group = Group(comm, range(comm.rank % 2, comm.size, 2))
        x = torch.tensor([float(comm.rank)])
        tree_all_reduce(x, group)
        return group.rank, group.size, x.item()

    assert simulate(rank, 5).results == [(0, 3, 6.0), (0, 2, 4.0), (1, 3, 6.0), (1, 2, 4.0), (2, 3, 6.0)]


def test_a_deadlock_inside_a_group_names_the_ranks_of_the_whole():
    def rank(comm):
        if comm.rank >= 2:
            Group(comm, [2, 3]).recv(torch.empty(1), 3 - comm.rank)

    with pytest.raises(RuntimeError, match=r"rank 2 waits in recv\(source=3\) at .*test_parts.py"):
        simulate(rank, 4)


@pytest.mark.parametrize(
    ("ranks", "rule"),
    [([0, 0], "each of its ranks once"), ([0, 7], "out of 0 to 1"), ([1], "rank 0 is not among ranks")],
)
def test_a_group_of_wrong_ranks_is_refused(ranks, rule):
    with pytest.raises(RuntimeError, match=rule):
        simulate(lambda comm: Group(comm, ranks) and None, 2)


def test_a_group_has_messages_only_and_says_what_to_use():
    with pytest.raises(RuntimeError, match=r"use hpcdl\.collectives\.broadcast"):
        simulate(lambda comm: Group(comm, [comm.rank]).broadcast(torch.ones(1)), 1)
