"""Lab `machines`: its oracles agree with the library, torch and closed forms."""

import pytest
import torch

from autograder.exercises.machines import hours, roofline, utilization, work
from hpcdl.cost import roofline as library
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import resnet50

pytestmark = pytest.mark.labs


def test_the_layers_of_resnet_are_counted_as_the_librarys_table_has_them():
    first = resnet50()[0]  # a stride of two: counted on the smaller image: four places are one
    weights, macs, _ = work.conv_layer(3, 64, 7, 112, 1)
    assert (weights, macs) == (first.weights, first.macs)


def test_the_operations_of_a_transformer_are_the_librarys():
    for sizes, *_ in utilization.PRINTED.values():
        layers, hidden, sequence, vocabulary, batch = sizes
        flops = Transformer(layers, hidden, sequence, vocabulary).flops(batch, "nothing")
        assert 3 * sum(utilization.forward(*sizes)) == pytest.approx(flops)


def test_a_layer_stands_where_the_library_has_it():
    for layer in roofline.drawn(torch.Generator().manual_seed(0), 8):
        intensity, rate, limit = roofline.placed(layer, 16, 4e6, 1e6, 2)
        device = library.Device(4e6, 1e6)
        assert float(rate) == pytest.approx(library.attainable(float(intensity), device))
        assert limit == library.bound(2 * 16 * layer[1], roofline.bytes_of(layer, 16, 2), device)


def test_the_search_finds_the_first_batch():
    for layer in roofline.drawn(torch.Generator().manual_seed(1), 8):
        found = roofline.searched(layer, 100.0, 60.0, 4, most=1 << 12)
        limits = [roofline.placed(layer, batch, 100.0, 60.0, 4)[2] for batch in range(1, 300)]
        first = limits.index("compute") + 1 if "compute" in limits else None
        assert found == first or (first is None and found >= 300)


def test_the_lectures_hours_are_the_oracles():
    found = hours.exact([(0, 0, 0), (25_500_000, 3_900_000_000, 1)], 256, 1_280_000, 90, (112e12, 900e9, 2), 1457.0)
    assert (round(found["arithmetic"], 1), round(found["measured"])) == (6.7, 22)
