"""Gossip: values are powers of W, traffic is one message each way for each edge, distances shrink as gaps say."""

import math

import numpy as np
import pytest
import torch

from hpcdl.comm import RankError, simulate
from hpcdl.consistency.gossip import TOPOLOGIES, gossip, mixing, shrinks, spectral_gap

SIZES = [1, 2, 3, 4, 5, 8]
each_topology = pytest.mark.parametrize("topology", TOPOLOGIES)


def start(p):
    return np.random.default_rng(p).standard_normal((p, 3))


def on_ranks(comm, topology, rounds):
    x = torch.from_numpy(start(comm.size)[comm.rank].copy())
    gossip(x, comm, topology, rounds)
    return x.numpy()


def far(x):
    return np.linalg.norm(x - x.mean(axis=0))


@each_topology
@pytest.mark.parametrize("p", SIZES)
def test_rounds_on_ranks_are_products_with_w_and_keep_the_mean(topology, p):
    found = np.stack(simulate(on_ranks, p, topology, 4).results)
    expected = start(p)
    for number in range(4):
        expected = mixing(p, TOPOLOGIES[topology](p, number)) @ expected
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.mean(axis=0), start(p).mean(axis=0), rtol=0, atol=1e-12)


@each_topology
@pytest.mark.parametrize("p", SIZES)
def test_each_edge_is_a_message_each_way_in_each_round(topology, p):
    sent = [event for event in simulate(on_ranks, p, topology, 3).trace if event.op == "send"]
    edges = [edge for number in range(3) for edge in TOPOLOGIES[topology](p, number)]
    assert sorted((e.rank, e.peer) for e in sent) == sorted([*edges, *((j, i) for i, j in edges)])
    assert all(event.nbytes == 3 * 8 for event in sent)


@each_topology
@pytest.mark.parametrize("p", [*SIZES, 33])
def test_w_is_symmetric_its_rows_add_up_to_one_and_none_is_negative(topology, p):
    w = mixing(p, TOPOLOGIES[topology](p, 7))
    assert np.array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1.0)
    assert w.min() >= -1e-15


@pytest.mark.parametrize("p", [5, 8, 33])
def test_the_gaps_are_those_of_the_closed_forms(p):
    def gap(topology):
        return spectral_gap(mixing(p, TOPOLOGIES[topology](p, 0)))

    assert gap("ring") == pytest.approx(2 / 3 * (1 - math.cos(2 * math.pi / p)))
    assert gap("wheel") == pytest.approx((1 - math.cos(2 * math.pi / (p - 1))) / 2 + 1 / p)
    assert gap("everyone") == pytest.approx(1.0)


@pytest.mark.parametrize("topology", ["ring", "wheel", "everyone"])
def test_rounds_shrink_the_distance_by_the_gap(topology):
    w = mixing(9, TOPOLOGIES[topology](9, 0))
    x, factor = start(9), shrinks(topology, 9)
    for _ in range(20):
        after = w @ x
        assert far(after) <= factor * far(x) + 1e-12
        x = after
    values, vectors = np.linalg.eigh(w)
    slowest = vectors[:, [np.argsort(np.abs(values))[-2]]]
    assert far(w @ slowest) == pytest.approx(factor, abs=1e-12)


@pytest.mark.parametrize("p", [2, 3, 8, 9])
def test_random_peers_shrink_the_square_by_the_closed_form_on_average(p):
    x = start(p) - start(p).mean(axis=0)
    squares = [far(mixing(p, TOPOLOGIES["random peers"](p, number)) @ x) ** 2 for number in range(4000)]
    assert np.mean(squares) / far(x) ** 2 == pytest.approx(shrinks("random peers", p) ** 2, abs=0.02)


def test_ring_slows_with_the_square_of_its_size():
    assert (1 - shrinks("ring", 32)) / (1 - shrinks("ring", 64)) == pytest.approx(4, rel=0.01)
    assert shrinks("random peers", 1024) < math.sqrt(0.5) < 0.71


def test_what_is_no_edge_or_topology_is_said():
    with pytest.raises(ValueError, match=r"edge \(2, 5\) of 4 ranks"):
        mixing(4, [(2, 5)])
    with pytest.raises(RankError, match="topology is 'star'; it is one of ring, wheel, random peers, everyone"):
        simulate(lambda comm: gossip(torch.ones(1), comm, "star", 1), 1)
