"""The multi-layer perceptron against torch's autograd and torch's own layers."""

import pytest
import torch

from hpcdl.nn import mlp

SHAPES = [(1, 1), (4, 2), (3, 5, 1), (2, 7, 1, 4, 3), (6, 3, 3, 3, 3, 3, 2)]
ACTIVATIONS = {"sigmoid": (mlp.SIGMOID, torch.nn.Sigmoid), "relu": (mlp.RELU, torch.nn.ReLU)}


def network(widths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights, biases = mlp.initial(widths, generator, dtype=torch.float64)
    biases = [torch.randn(b.shape, generator=generator, dtype=torch.float64) for b in biases]
    X = torch.randn(5, widths[0], generator=generator, dtype=torch.float64)
    return weights, biases, X, torch.rand(5, widths[-1], generator=generator, dtype=torch.float64)


def torch_network(weights, biases, layer):
    layers = []
    for W, b in zip(weights, biases, strict=True):
        linear = torch.nn.Linear(*W.T.shape, dtype=W.dtype)
        linear.load_state_dict({"weight": W, "bias": b})
        layers += [linear, layer()]
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("widths", SHAPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_outputs_and_gradients_equal_those_of_torch(widths, name):
    activation, layer = ACTIVATIONS[name]
    weights, biases, X, Y = network(widths)
    model = torch_network(weights, biases, layer)
    output = model(X)
    torch.testing.assert_close(mlp.feedforward(weights, biases, X, activation)[1][-1], output.detach())
    loss = 0.5 * torch.nn.functional.mse_loss(output, Y, reduction="sum") / len(X)
    torch.testing.assert_close(mlp.cost(output, Y), loss)
    loss.backward()
    weight_grads, bias_grads = mlp.backprop(weights, biases, X, Y, activation)
    torch.testing.assert_close(weight_grads, [linear.weight.grad for linear in model[::2]])
    torch.testing.assert_close(bias_grads, [linear.bias.grad for linear in model[::2]])


def test_a_sample_and_a_batch_of_one_agree():
    weights, biases, X, Y = network((4, 3, 2))
    zs, activations = mlp.feedforward(weights, biases, X[0])
    batched = mlp.feedforward(weights, biases, X[:1])
    torch.testing.assert_close([*zs, *activations], [t[0] for part in batched for t in part])
    deltas = mlp.errors(weights, zs, activations[-1], Y[0])
    assert [d.shape for d in deltas] == [(3,), (2,)]
    torch.testing.assert_close(torch.outer(deltas[0], X[0]), mlp.backprop(weights, biases, X[:1], Y[:1])[0][0])


def test_initial_weights_keep_the_size_of_z():
    before = torch.random.get_rng_state()
    weights, biases = mlp.initial((400, 300, 200), torch.Generator().manual_seed(1), scale=2.0)
    assert torch.equal(before, torch.random.get_rng_state())
    assert [W.shape for W in weights] == [(300, 400), (200, 300)]
    assert not any(b.any() for b in biases)
    for W in weights:
        assert float(W.std()) == pytest.approx(2 / W.shape[1] ** 0.5, rel=0.02)


def test_the_gradients_of_a_sample_are_those_of_a_batch_of_one():
    weights, biases = mlp.initial([3, 3, 3], torch.Generator().manual_seed(0), dtype=torch.float64)
    x, y = torch.arange(3.0).double(), torch.ones(3).double()
    one, batch = mlp.backprop(weights, biases, x, y), mlp.backprop(weights, biases, x[None], y[None])
    for mine, right in zip(one, batch, strict=True):
        assert all(map(torch.equal, mine, right))
