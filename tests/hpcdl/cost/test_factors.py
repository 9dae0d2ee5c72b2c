"""Factors instead of a linear layer's gradient."""

import pytest

from hpcdl.cost import factors
from hpcdl.nn.networks import total, vgg16


def test_factors_are_sent_where_they_are_fewer():
    layers = vgg16()
    few, many = factors.sent(layers, 8, 32), factors.sent(layers, 8, 100_000)
    assert few[13].weights == 7 * 32 * (25088 + 4096) // 2  # fc6
    assert few[:13] == layers[:13], "a convolution's gradient is no product of two factors"
    assert many == layers
    assert total(few, "weights") < total(layers, "weights") / 4


def test_every_rank_computes_the_others_products():
    layers = vgg16()
    linear = sum(layer.weights for layer in layers[13:])
    assert factors.operations(layers, 8, 32) == pytest.approx(2 * 7 * 32 * linear)
    assert factors.operations(layers, 1, 32) == 0
    assert factors.operations(layers, 8, 100_000) == 0
