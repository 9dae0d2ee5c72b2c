"""Lab `consistency`: its oracles agree with the library, torch and closed forms."""

import math

import numpy as np
import pytest
import torch

from autograder.exercises.consistency import clocks, delay, gossip
from hpcdl.consistency.gossip import mixing, spectral_gap
from hpcdl.widgets.pictures import how_late, who_waits

pytestmark = pytest.mark.labs


@pytest.mark.parametrize("staleness", [0, 1, 2, 5, math.inf])
def test_events_and_the_closed_recurrence_agree(staleness):
    rng = torch.Generator().manual_seed(1)
    seconds = clocks.uneven(rng, 4, 9)
    assert clocks.played(seconds, staleness) == who_waits.clocks(seconds, staleness)


def test_more_staleness_never_ends_later():
    seconds = clocks.uneven(torch.Generator().manual_seed(2), 4, 12)
    ends = [max(mine[-1][1] for mine in clocks.played(seconds, s)) for s in (0, 1, 2, 3, math.inf)]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] == max(map(sum, seconds))


@pytest.mark.parametrize("late", [0, 1, 2, 3, 6, 20])
def test_the_roots_reach_the_unit_circle_at_the_sine(late):
    assert delay.bound(late) == pytest.approx(2 * math.sin(math.pi / (4 * late + 2)))
    assert how_late.bound(late) == pytest.approx(delay.bound(late))


def test_fractions_and_the_library_have_one_matrix():
    for p, edges in ((5, gossip.ring(5)), (7, gossip.wheel(7)), (6, gossip.two_sides(6))):
        found = gossip.matrix(p, edges)
        assert np.allclose(found, mixing(p, sorted(edges)), atol=1e-15)
        assert np.allclose(found.sum(0), 1)


def test_norms_of_powers_shrink_by_the_second_eigenvalue():
    for w in (gossip.matrix(9, gossip.ring(9)), gossip.matrix(6, gossip.two_sides(6))):
        ratio = 1 - spectral_gap(w.numpy())
        assert np.allclose(list(gossip.norms(w, 6)), [ratio**k for k in range(6)])
