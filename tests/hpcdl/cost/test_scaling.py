"""An iteration of data-parallel training: buckets, overlap, clusters, stragglers, data."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from hpcdl import collectives
from hpcdl.comm import simulate
from hpcdl.cost.collectives import ring
from hpcdl.cost.scaling import (
    Gradient,
    Iteration,
    capped,
    finished,
    fused,
    gradients,
    iteration,
    layerwise,
    merged,
    single,
    slowest,
)
from hpcdl.cost.topology import Link
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import resnet50, total

ETHERNET = Link(9.0810e-4, 7.3957e-10)  # MG-WFBP's fit for all-reduce over 16 workers on 10 GbE


def affine(nbytes):
    return ETHERNET.alpha + ETHERNET.beta * nbytes


@st.composite
def networks(draw):
    """Up to seven gradients, in order of readiness, in units of alpha."""
    steps = draw(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 40)), min_size=1, max_size=7))
    ready = itertools.accumulate(step for step, _ in steps)
    return [Gradient(when, nbytes) for when, (_, nbytes) in zip(ready, steps, strict=True)]


def partitions(items):
    """Every way to cut a list into stretches."""
    for cuts in itertools.product([False, True], repeat=len(items) - 1):
        stretches = [[items[0]]]
        for cut, item in zip(cuts, items[1:], strict=True):
            if cut:
                stretches.append([])
            stretches[-1].append(item)
        yield stretches


def test_gradients_come_last_layer_first_with_all_bytes_by_the_end():
    layers = resnet50()
    found = gradients(layers, backward=0.12)
    assert [gradient.nbytes for gradient in found] == [4 * layer.weights for layer in reversed(layers)]
    assert found[-1].ready == pytest.approx(0.12)
    assert found == sorted(found, key=lambda gradient: gradient.ready)
    assert found[0].ready == pytest.approx(0.12 * layers[-1].macs / total(layers, "macs"))


@given(networks())
@settings(max_examples=60, deadline=None)
def test_no_other_buckets_finish_before_the_merged_ones(network):
    def cost(nbytes):
        return 1.0 + 0.1 * nbytes

    ours = finished(merged(network, cost), cost)
    others = [
        finished([Gradient(max(g.ready for g in part), sum(g.nbytes for g in part)) for part in parts], cost)
        for parts in partitions(network)
    ]
    assert ours == pytest.approx(min(others), rel=1e-12)


@given(networks(), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_buckets_keep_every_byte_and_their_caps(network, cap):
    largest = max(gradient.nbytes for gradient in network)
    for buckets in (
        layerwise(network),
        single(network),
        capped(network, cap=cap),
        fused(network, affine, cap=cap),
        merged(network, affine),
    ):
        assert sum(bucket.nbytes for bucket in buckets) == sum(gradient.nbytes for gradient in network)
        assert buckets[-1].ready == network[-1].ready
    for buckets in (capped(network, cap=cap), fused(network, affine, cap=cap)):
        assert all(bucket.nbytes <= max(cap, largest) for bucket in buckets)


def test_fusion_takes_what_has_come_while_the_network_was_busy():
    network = [Gradient(0.0, 10), Gradient(1.0, 10), Gradient(2.0, 10), Gradient(50.0, 10)]
    assert fused(network, lambda nbytes: 5.0) == [(0.0, 10), (2.0, 20), (50.0, 10)]
    assert fused(network, lambda nbytes: 5.0, cap=15) == [(0.0, 10), (1.0, 10), (2.0, 10), (50.0, 10)]
    assert fused(network, lambda nbytes: 0.5) == network


def test_a_tensor_above_the_cap_travels_alone():
    network = [Gradient(1.0, 10), Gradient(2.0, 99), Gradient(3.0, 10), Gradient(4.0, 10)]
    assert capped(network, cap=25) == [(1.0, 10), (2.0, 99), (4.0, 20)]


def test_merging_is_best_on_slow_links():
    network = gradients(resnet50(), backward=0.1)
    times = {f.__name__: finished(f(network, affine), affine) for f in (layerwise, single, capped, fused, merged)}
    assert times["merged"] == min(times.values())
    assert times["merged"] < 0.97 * min(times["layerwise"], times["single"])
    assert 1 < len(merged(network, affine)) < len(network)


def test_iteration_without_overlap_as_simulated():
    p, sizes = 4, [1000, 10, 4000]
    network = [Gradient(0.1 * (i + 1), 4 * n) for i, n in enumerate(sizes)]

    def program(comm):
        comm.compute(0.2 + network[-1].ready)
        for n in sizes:
            collectives.ring_all_reduce(torch.ones(n), comm)

    seconds = simulate(program, p, alpha=1e-3, beta=1e-6).seconds
    ours = iteration(0.2, network, functools.partial(ring, p, alpha=1e-3, beta=1e-6), overlap=False)
    assert ours.seconds == pytest.approx(seconds, rel=1e-12)


def test_overlap_hides_what_fits_into_backward():
    network = [Gradient(1.0, 1), Gradient(2.0, 1)]
    assert iteration(1.0, network, lambda nbytes: 0.5) == Iteration(1.0, 2.0, 0.5, 0.0)
    assert iteration(1.0, network, lambda nbytes: 3.0) == Iteration(1.0, 2.0, 5.0, 0.0)
    assert iteration(1.0, network, lambda nbytes: 3.0, overlap=False).exposed == 6.0


def test_overlap_saves_at_most_forty_percent():
    network = [Gradient(2.0 * (i + 1) / 1000, 1) for i in range(1000)]
    saved = []
    for communication in np.linspace(0.1, 6, 60):
        cost = functools.partial(lambda each, nbytes: each, communication / 1000)
        hidden, bare = (iteration(1.0, network, cost, overlap=overlap).seconds for overlap in (True, False))
        saved.append(1 - hidden / bare)
    assert max(saved) == pytest.approx(0.40, abs=0.005)
    assert max(saved) > 0.380  # published for ResNet-50 with NCCL


def test_prefetch_hides_loading_up_to_its_rate():
    network = [Gradient(2.0, 1)]
    slow, fast = ({"input_seconds": seconds} for seconds in (5.0, 1.5))
    assert iteration(1.0, network, lambda nbytes: 1.0, **slow).waiting == 1.0
    assert iteration(1.0, network, lambda nbytes: 1.0, **fast).waiting == 0.0
    assert iteration(1.0, network, lambda nbytes: 1.0, **fast, prefetch=False).seconds == 5.5


@pytest.mark.parametrize("p", [2, 8, 64, 512])
def test_the_slowest_rank_is_as_slow_as_sampling_says(p):
    largest = np.random.default_rng(0).standard_normal((4000, p)).max(axis=1).mean()
    # Standard error of the mean of 4,000 maxima is below 0.015; Blom's approximation is within 0.02.
    assert slowest(p, 1.0) - 1 == pytest.approx(largest, abs=0.06)
    assert slowest(1, 1.0) == 1.0


@pytest.mark.parametrize("p", [2, 3, 8, 64, 512, 4096, 65_536])
def test_the_slowest_rank_is_the_largest_normal(p):
    """The mean of the largest of p normal values, by its integral; sqrt(2 ln p) is what it tends to, from below."""
    x = np.linspace(-9, 9, 20_001)
    below = ndtr(x) ** p
    expected = np.trapezoid(np.where(x > 0, 1 - below, -below), x)
    assert slowest(p, 1.0) - 1 == pytest.approx(expected, rel=0.05)
    assert slowest(p, 1.0) - 1 < np.sqrt(2 * np.log(p))


def test_gradients_of_a_transformer():
    gpt = Transformer(layers=3, hidden=64, sequence=32, vocabulary=100)
    found = gradients(gpt, backward=1.0)
    assert sum(gradient.nbytes for gradient in found) == 4 * gpt.parameters
    assert found[-1].ready == pytest.approx(1.0)
    with pytest.raises(TypeError, match=r"the model is 7; it is a list of hpcdl\.nn\.networks\.Layer"):
        gradients(7, backward=1.0)
