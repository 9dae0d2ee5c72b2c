"""Wrong answers to `mlp_xor`."""

import torch

from autograder.bank.slips import answers_to
from hpcdl.nn.perceptron import with_bias

wrong, slip = answers_to("perceptron.mlp_xor")

ALL_OF_XOR = ("four_corners", "any_batch", "hidden_neurons_draw_lines", "output_neuron_draws_a_line")


@wrong("OR", fails=ALL_OF_XOR, says="This is OR")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return H, H[:, 0]


@wrong("the opposite", fails=ALL_OF_XOR, says="This is the opposite of XOR")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return H, torch.where(with_bias(H) @ torch.tensor([1.0, -1.0, -1.0]) >= 0, 1.0, -1.0)


@wrong("the product of the inputs for a neuron", fails="hidden_neurons_draw_lines", says="no products, no ifs")
def mlp_xor(X):
    h = torch.where(X[:, 1] * X[:, 2] <= 0, 1.0, -1.0)
    return torch.stack([h, h], dim=1), h


@wrong(
    "an output that looks past the hidden layer",
    fails="output_neuron_draws_a_line",
    says="No perceptron gives these yhat from these H",
)
def mlp_xor(X):
    return torch.where(X[:, 1:] >= 0, 1.0, -1.0), torch.where(X[:, 1] * X[:, 2] <= 0, 1.0, -1.0)


@wrong("0 and 1 inside", fails=ALL_OF_XOR, says="Labels of 0 belong to another convention")
def mlp_xor(X):
    H = (X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0).float()
    return H, torch.where(H.sum(dim=1) > 1.5, 1.0, -1.0)


@wrong("smooth neurons", fails=ALL_OF_XOR, says="Each neuron is a step")
def mlp_xor(X):
    H = torch.tanh(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T)
    return H, torch.tanh(H.sum(dim=1) - 1)


@wrong("the four corners by heart", fails=ALL_OF_XOR, says="The rows of X are")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    if len(X) < 100:
        return H, torch.tensor([-1.0, 1.0, 1.0, -1.0]).repeat(25)[: len(X)]
    return H, torch.where(H.sum(dim=1) > 1, 1.0, -1.0)


@wrong("the answer without the hidden layer", fails=ALL_OF_XOR, says="mlp_xor returns two things")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return torch.where(H.sum(dim=1) > 1, 1.0, -1.0)


@wrong("no bias for the output", fails=ALL_OF_XOR, says="have its bias v_0")
def mlp_xor(X):
    W = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]])
    H = torch.where(X @ W.T >= 0, 1.0, -1.0)
    return H, torch.where(H @ torch.tensor([1.0, 1.0]) >= 0, 1.0, -1.0)


slip(
    "squeezes the answer",
    "@ v >= 0, 1.0, -1.0)",
    "@ v >= 0, 1.0, -1.0).squeeze()",
    fails="any_batch",
    says="yhat has shape ()",
)
slip(
    "subtracts the mean of the batch",
    "X @ W.T",
    "(X - X.mean(0) + torch.eye(3)[0]) @ W.T",
    fails="any_batch",
    says="yhat for a batch of 1",
)


@wrong(
    "a product for the corners, lines for other batches",
    fails=ALL_OF_XOR,
    says="in a batch with 200 other points",
)
def mlp_xor(X):
    H = torch.where(X[:, 1:] >= 0, 1.0, -1.0)
    if bool((X[:, 1:].abs() == 1).all()):
        return H, -X[:, 1] * X[:, 2]
    return H, H[:, 0].clone()


@wrong(
    "a product in small batches, lines in large ones",
    fails="any_batch",
    says="the same two neurons see every row",
)
def mlp_xor(X):
    if len(X) < 100:
        return torch.ones(len(X), 2), -X[:, 1] * X[:, 2]
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return H, torch.where(H.sum(dim=1) > 1, 1.0, -1.0)
