"""The awkward networks are awkward in the way they say, and a layer can take time."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from hpcdl.comm import simulate
from hpcdl.nn.awkward import MODELS, Deep, Frozen, Routed, Tied, Unused, takes_time


def without_gradient(model, x):
    cross_entropy(model(x), torch.zeros(len(x), dtype=torch.int64)).backward()
    return {name for name, param in model.named_parameters() if param.grad is None}


@pytest.mark.parametrize("name", MODELS)
def test_each_gives_three_logits_a_sample(name):
    assert MODELS[name]()(torch.randn(5, 4)).shape == (5, 3)
    assert "`" not in MODELS[name].__doc__.partition(":")[0]  # feedback shows it up to its colon


def test_shared_frozen_and_unused_parameters_are_what_they_say():
    x = torch.randn(6, 4)
    assert len(list(Tied().parameters())) == 5
    assert without_gradient(Tied(), x) == set()
    assert without_gradient(Frozen(), x) == {"second.weight", "second.bias"}
    assert without_gradient(Unused(), x) == {"spare.weight", "spare.bias"}


def test_expert_without_samples_has_no_gradient():
    x, model = torch.randn(6, 4), Routed()
    assert without_gradient(model, x.abs()) == {"negative.weight", "negative.bias"}
    hidden = torch.relu(model.first(x))
    expected = torch.where(x[:, :1] < 0, model.negative(hidden), model.positive(hidden))
    assert torch.allclose(model(x), expected)


def test_backward_of_each_layer_takes_its_time():
    def rank(comm):
        model = takes_time(Deep(), comm, 0.5)
        model(torch.ones(1, 4)).sum().backward()
        return comm.clock()

    run = simulate(rank, 2)
    assert run.results == [6.0, 6.0]
    assert sum(event.op == "compute" for event in run.trace) == 24
