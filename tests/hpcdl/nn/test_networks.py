"""The layer tables add up to what the lecture and the libraries count."""

import pytest
from torch import nn

from hpcdl.nn import networks
from hpcdl.nn.networks import NETWORKS, total

# Lecture, "Summary of popular CNNs": weights and MACs of convolutions and of linear layers, as printed.
LECTURE = {
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


@pytest.mark.parametrize(("name", "convolutions"), [("resnet50", 53), ("resnet101", 104), ("resnet152", 155)])
def test_resnets_have_their_convolutions_and_one_linear_layer(name, convolutions):
    names = [layer.name for layer in NETWORKS[name]()]
    assert names[-1] == "linear1"
    assert len(names) == len(set(names)) == convolutions + 1


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
def test_a_network_starts_with_its_image_and_ends_with_a_thousand_classes(name):
    layers = NETWORKS[name]()
    assert layers[0].inputs in (3 * 224**2, 3 * 227**2, 3 * 299**2)
    assert layers[-1].outputs == 1000
    assert all(layer.weights > 0 and layer.macs >= layer.weights for layer in layers)


def test_a_table_agrees_with_a_real_network_run_by_torch():
    real = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Conv2d(64, 64, 3, padding=1, bias=False))
    assert [layer.weights for layer in networks.vgg16()[:2]] == [p.numel() for p in real.parameters()]
    assert networks.vgg16()[1].outputs == 64 * 224 * 224
