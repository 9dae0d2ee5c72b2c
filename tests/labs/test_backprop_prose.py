"""What lab 04 says about its last experiments, measured with the lab's own solutions."""

import pytest
import torch

from autograder.authors import build
from hpcdl.data import digits
from hpcdl.nn.mlp import initial

pytestmark = pytest.mark.labs


@pytest.fixture(scope="module")
def lab():
    """The names of the solved lab."""
    names: dict = {}
    exec("import torch\nfrom hpcdl.nn.mlp import sigma, sigma_prime", names)
    for source in build.references("backprop").values():
        exec(source, names)
    return names


def held_out_accuracy(lab, widths, scale, batch_size, epochs) -> float:
    split, generator = digits(), torch.Generator().manual_seed(0)
    start = initial(widths, generator, scale)
    weights, biases = lab["train"](split.x.flatten(1), split.y, *start, 2.0, batch_size, epochs, generator)
    zs, _ = lab["feedforward"](weights, biases, split.x_held_out.flatten(1))
    return (zs[-1].argmax(dim=1) == split.y_held_out).float().mean().item()


@pytest.mark.parametrize(
    ("widths", "scale", "batch_size", "epochs", "low", "high"),
    [
        pytest.param((64, 32, 10), 1.0, 32, 30, 0.97, 1.0, id="as the lab trains"),
        pytest.param((64, 32, 10), 1.0, 32, 3, 0.85, 1.0, id="three epochs teach it as much"),
        pytest.param((64, 10), 1.0, 32, 30, 0.94, 0.975, id="without a hidden layer, about 96 %"),
        pytest.param((64, 32, 32, 32, 32, 10), 1.0, 32, 15, 0.0, 0.2, id="four layers of sigmoids stay at chance"),
        pytest.param((64, 32, 10), 0.0, 32, 30, 0.2, 0.45, id="zero weights stop below 45 %"),
        pytest.param((64, 32, 10), 1.0, 1438, 30, 0.8, 0.9, id="one batch an epoch ends at about 85 %"),
    ],
)
def test_the_experiments_end_where_the_lab_says(lab, widths, scale, batch_size, epochs, low, high):
    assert low <= held_out_accuracy(lab, widths, scale, batch_size, epochs) <= high
