"""simulate(slow={rank: factor}): work takes so many times as long on these ranks, and messages as long as before."""

import math

import pytest
import torch

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import simulate


def clocks(f, p, **options):
    return simulate(lambda comm: f(comm) or comm.clock(), p, **options).results


def test_slow_factor_applies_to_work_not_messages():
    assert clocks(lambda comm: comm.compute(2.0), 3, slow={1: 3.0, 2: 0.5}) == [2.0, 6.0, 1.0]
    sums = clocks(lambda comm: comm.accumulate(torch.ones(4), torch.ones(4)), 2, gamma=0.25, slow={0: 2})
    assert sums == [8.0, 4.0]
    message = lambda comm: comm.sendrecv(torch.ones(4), 1 - comm.rank, torch.ones(4), 1 - comm.rank)  # noqa: E731
    assert clocks(message, 2, alpha=1.0, beta=0.5, slow={0: 7.0}) == [9.0, 9.0]


def test_slowest_rank_adds_last():
    assert clocks(lambda comm: comm.all_reduce(torch.ones(4)), 2, gamma=0.25, slow={1: 3.0}) == [12.0, 12.0]


def test_one_slow_rank_holds_up_a_ring():
    def step(comm):
        comm.compute(1.0)
        ring_all_reduce(torch.ones(8), comm)

    assert max(clocks(step, 4, slow={2: 5.0})) == 5.0 == min(clocks(step, 4, slow={2: 5.0}))


def test_background_of_a_slow_rank_is_slow():
    def rank(comm):
        background = comm.background()
        background.start(lambda inner: inner.compute(2.0))
        background.wait()

    assert clocks(rank, 2, slow={1: 4.0}) == [2.0, 8.0]


def test_without_slow_ranks_nothing_changes():
    def rank(comm):
        comm.compute(0.1)
        ring_all_reduce(torch.ones(10), comm)

    costs = {"alpha": 1e-6, "beta": 1e-9, "gamma": 1e-10}
    assert simulate(rank, 5, **costs).trace == simulate(rank, 5, **costs, slow={}).trace
    assert simulate(rank, 5, **costs).trace == simulate(rank, 5, **costs, slow={3: 1}).trace


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ({2: 2.0}, "slow names rank 2; ranks are 0 to 1"),
        ({-1: 2.0}, "slow names rank -1"),
        ({"0": 2.0}, "slow names rank '0'"),
        ({0: 0.0}, r"slow\[0\] is 0.0; a factor is above 0, and 2 is half as fast"),
        ({0: math.nan}, r"slow\[0\] is nan"),
        ({1: math.inf}, r"slow\[1\] is inf"),
    ],
)
def test_wrong_factors_are_named(slow, said):
    with pytest.raises(ValueError, match=said):
        simulate(lambda comm: None, 2, slow=slow)
