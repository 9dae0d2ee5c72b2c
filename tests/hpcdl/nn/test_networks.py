"""The layer tables add up to what the lecture and the libraries count."""

import pytest
from torch import nn

from hpcdl.nn import lenet, networks
from hpcdl.nn.networks import NETWORKS, total

# Lecture, "Summary of popular CNNs": weights and MACs of convolutions and of linear layers, as printed.
LECTURE = {
    "lenet5": {"linear": (58e3, 58e3)},
    "overfeat_fast": {"conv": (16e6, 2.67e9), "linear": (130e6, 130e6), "all": (146e6, 2.8e9)},
    "alexnet": {"conv": (2.3e6, 666e6), "linear": (58.6e6, 58.6e6), "all": (61e6, 724e6)},
    "vgg16": {"conv": (14.7e6, 15.3e9), "linear": (124e6, 124e6), "all": (138e6, 15.5e9)},
    "resnet50": {"conv": (23.5e6, 3.86e9), "linear": (2e6, 2e6), "all": (25.5e6, 3.9e9)},
}


@pytest.mark.parametrize(
    ("name", "kind", "weights", "macs"),
    [(name, kind, *pair) for name, kinds in LECTURE.items() for kind, pair in kinds.items()],
)
def test_totals_are_those_of_the_lectures_table(name, kind, weights, macs):
    layers = [layer for layer in NETWORKS[name]() if kind == "all" or layer.name.startswith(kind)]
    assert total(layers, "weights") == pytest.approx(weights, rel=0.025)
    assert total(layers, "macs") == pytest.approx(macs, rel=0.025)


def _macs(layers, kind):
    return sum(layer.macs for layer in layers if layer.name.startswith(kind))


def test_where_the_lectures_table_is_off():
    """Where totals differ from the table, the reason is known."""
    vgg, overfeat = networks.vgg16(), networks.overfeat_fast()
    assert _macs(vgg, "linear") == pytest.approx(124e6, rel=0.01)  # the table: 130 M, and 124 M for OverFeat
    assert _macs(overfeat, "linear") == pytest.approx(130e6, rel=0.01)
    small = networks.lenet5()
    assert [layer.weights for layer in small[:2]] == [150, 2400]  # the table: 2.6 k, beside 20 and 50 filters
    assert _macs(small, "conv") == 150 * 28**2 + 2400 * 10**2  # the table: 283 k
    assert total(small, "weights") == pytest.approx(60e3, rel=0.03)


def test_googlenet_has_the_lectures_macs_where_pooling_rounds_down(monkeypatch):
    assert total(networks.googlenet(), "weights") == pytest.approx(7e6, rel=0.01)
    assert total(networks.googlenet(), "macs") == pytest.approx(1.58e9, rel=0.01)
    pool = networks._Net.pool
    monkeypatch.setattr(networks._Net, "pool", lambda net, kernel, stride, padding=0: pool(net, kernel, stride))
    assert _macs(networks.googlenet(), "conv") == pytest.approx(1.43e9, rel=0.002)


CONVOLUTIONS = {"lenet5": 2, "alexnet": 5, "overfeat_fast": 5, "vgg16": 13, "googlenet": 57, "resnet50": 53}
CONVOLUTIONS |= {"resnet101": 104, "resnet152": 155}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_network_has_its_convolutions_then_its_linear_layers(name):
    names = [layer.name for layer in NETWORKS[name]()]
    kinds = [name.rstrip("0123456789") for name in names]
    assert kinds == ["conv"] * CONVOLUTIONS[name] + ["linear"] * (len(names) - CONVOLUTIONS[name])
    assert len(names) == len(set(names))


def test_inception_v3_has_torchvisions_parameters():
    """torchvision's model card says 27,161,264 with biases, batch normalization and the auxiliary classifier."""
    layers = networks.inception_v3()
    auxiliary = [nn.Conv2d(768, 128, 1, bias=False), nn.Conv2d(128, 768, 5, bias=False), nn.Linear(768, 1000)]
    weights = total(layers, "weights") + sum(p.numel() for layer in auxiliary for p in layer.parameters())
    channels = sum(_channels(layer) for layer in layers if layer.name.startswith("conv")) + 128 + 768
    assert weights + 1000 + 2 * channels == 27_161_264


def _channels(layer):
    """Output channels: the divisor that turns outputs into a square of MACs per weight."""
    return layer.outputs * layer.weights // layer.macs


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_starts_with_its_image_and_ends_with_its_classes(name):
    layers = NETWORKS[name]()
    assert layers[0].inputs in (28**2, 3 * 224**2, 3 * 227**2, 3 * 231**2, 3 * 299**2)
    assert layers[-1].outputs == (10 if name == "lenet5" else 1000)
    assert all(layer.weights > 0 and layer.macs >= layer.weights for layer in layers)


def test_lenet5_is_the_network_of_the_labs():
    weights = [p.numel() for p in lenet.lenet5().parameters() if p.dim() > 1]
    assert [layer.weights for layer in networks.lenet5()] == weights


def test_a_table_agrees_with_a_real_network_run_by_torch():
    real = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Conv2d(64, 64, 3, padding=1, bias=False))
    assert [layer.weights for layer in networks.vgg16()[:2]] == [p.numel() for p in real.parameters()]
    assert networks.vgg16()[1].outputs == 64 * 224 * 224
