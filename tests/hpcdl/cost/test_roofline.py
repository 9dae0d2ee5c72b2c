"""A kernel is limited by arithmetic or by memory, and the ridge lies between."""

import pytest

from hpcdl.cost.machines import A100_DGX, V100_DGX1
from hpcdl.cost.roofline import Device, attainable, bound, seconds
from hpcdl.cost.work import forward, forward_seconds
from hpcdl.nn.networks import resnet50, total, vgg16

DEVICE = Device(peak=100.0, bandwidth=10.0)


@pytest.mark.parametrize(("intensity", "rate"), [(1, 10), (5, 50), (10, 100), (1000, 100)])
def test_the_roof_rises_with_intensity_and_then_is_flat(intensity, rate):
    assert attainable(intensity, DEVICE) == rate


def test_time_rate_and_limit_tell_the_same_story():
    assert DEVICE.ridge == 10
    for flops, nbytes, limit in ((100, 100, "memory"), (2000, 100, "compute")):
        assert bound(flops, nbytes, DEVICE) == limit
        assert seconds(flops, nbytes, DEVICE) == pytest.approx(flops / attainable(flops / nbytes, DEVICE))


def test_a_linear_layer_needs_a_batch_to_become_compute_bound():
    fc6 = vgg16()[13]
    device = V100_DGX1.device()
    assert bound(*forward(fc6, 1)[:2], device) == "memory"
    assert bound(*forward(fc6, 512)[:2], device) == "compute"
    assert forward(fc6, 1).intensity == pytest.approx(0.5, rel=0.001)  # two operations for each weight of four bytes


def test_a_network_takes_at_least_its_arithmetic_at_peak():
    flops = 2 * 64 * total(resnet50(), "macs")
    # FP32 arithmetic is so slow that every layer is compute-bound; on tensor cores memory is the limit of many.
    assert forward_seconds(resnet50(), 64, A100_DGX.device()) == pytest.approx(flops / A100_DGX.device().peak)
    tensor_cores = A100_DGX.device("fp16")
    assert forward_seconds(resnet50(), 64, tensor_cores, itemsize=2) > 1.3 * flops / tensor_cores.peak
