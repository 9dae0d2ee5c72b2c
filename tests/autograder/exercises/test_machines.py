"""Lab `machines`: its answers' worked examples hold, any seed will do, and its oracles agree with others."""

import doctest

import pytest
import torch

from autograder import exercises
from autograder.exercises.machines import hours, roofline, utilization, work
from autograder.grading.reference import statements
from autograder.grading.run import run_exercise
from autograder.sessions.local import LocalSession
from hpcdl.cost import roofline as library
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import resnet50

pytestmark = pytest.mark.labs

LAB = exercises.load("machines")
EXAMPLES = (
    *("conv", "linear", "attention", "work", "transformer_flops", "utilization", "train_seconds", "roof", "place"),
    *("stalls", "waits", "smallest_batch", "activation", "pooling", "batch_norm", "hours"),
)


@pytest.fixture(scope="module")
def reference() -> dict:
    names: dict = {"__name__": "reference", "torch": torch}
    for _, code in statements(LAB.slug, LAB.functions):
        exec(code, names)
    return names


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_worked_example_in_the_docstring_is_true(reference, name):
    (example,) = doctest.DocTestFinder(recurse=False).find(reference[name], name, globs=reference)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LAB.exercises)
def test_the_reference_passes_every_check_with_any_seed(reference, name, seed):
    result = run_exercise(LAB.exercises[name], LocalSession(reference), lambda check: 1000 * seed + len(check))
    assert not [(check.name, check.message, check.detail) for check in result.checks if not check.passed]


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


def test_a_lab_has_a_hundred_points():
    assert LAB.points == 100
