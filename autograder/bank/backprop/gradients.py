"""Wrong answers to `gradients`."""

import torch

from autograder.bank.slips import answers_to

wrong, _ = answers_to("backprop.gradients")


@wrong(
    "transposed outer product",
    fails=("outer_products", "square_layers", "bias_gradients"),
    says="The outer product is transposed",
)
def gradients(deltas, activations):
    weight_grads = [torch.outer(a, delta) for delta, a in zip(deltas, activations[:-1], strict=True)]
    return weight_grads, list(deltas)


@wrong(
    "the layer's own activation",
    fails=("outer_products", "square_layers", "bias_gradients"),
    says="uses the layer's own a",
)
def gradients(deltas, activations):
    return [torch.outer(delta, a) for delta, a in zip(deltas, activations[1:], strict=True)], list(deltas)


@wrong(
    "bias gradients forgotten",
    fails=("outer_products", "square_layers", "bias_gradients"),
    says="expected (weight_grads, bias_grads), two lists",
)
def gradients(deltas, activations):
    return [torch.outer(delta, a) for delta, a in zip(deltas, activations[:-1], strict=True)]
