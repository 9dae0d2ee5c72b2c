"""Wrong answers to `feedforward`."""

from autograder.authoring import wrong
from autograder.bank.backprop.later import BACKPROP, TRAIN
from hpcdl.nn.mlp import sigma

FORWARD = ("every_layer", "a_batch_at_once")


@wrong(
    "backprop.feedforward",
    "no bias",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="The bias is missing",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W in weights:
        zs.append(activations[-1] @ W.T)
        activations.append(sigma(zs[-1]))
    return zs, activations


@wrong(
    "backprop.feedforward",
    "no activation function",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="σ is missing here",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(activations[-1] @ W.T + b)
        activations.append(zs[-1])
    return zs, activations


@wrong(
    "backprop.feedforward",
    "zs hold activations",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="zs takes z before σ",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        activations.append(sigma(activations[-1] @ W.T + b))
        zs.append(activations[-1])
    return zs, activations


@wrong(
    "backprop.feedforward",
    "the input is left out of activations",
    fails=(
        "two_lists_from_layer_to_layer",
        *FORWARD,
        "leaves_the_network_alone",
        *BACKPROP,
        *TRAIN,
        "backprop.leaves_parameters_alone",
    ),
    says="activations has 1 items, expected 2",
)
def feedforward(weights, biases, x):
    zs, activations = [], []
    for W, b in zip(weights, biases, strict=True):
        zs.append(x @ W.T + b)
        x = sigma(zs[-1])
        activations.append(x)
    return zs, activations


@wrong(
    "backprop.feedforward",
    "the next layer takes z, not a",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="got z of the layer before",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        x = x @ W.T + b
        zs.append(x)
        activations.append(sigma(x))
    return zs, activations


@wrong(
    "backprop.feedforward",
    "writes into the biases",
    fails="leaves_the_network_alone",
    says="changed its argument biases[0]",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        b += activations[-1] @ W.T if activations[-1].dim() == 1 else 0
        zs.append(b if activations[-1].dim() == 1 else activations[-1] @ W.T + b)
        activations.append(sigma(zs[-1]))
    return zs, activations


@wrong(
    "backprop.feedforward",
    "W @ x for a batch too",
    fails=("a_batch_at_once", *BACKPROP, "backprop.leaves_parameters_alone", *TRAIN),
    says="so write X @ W.T + b",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(W @ activations[-1] + b)
        activations.append(sigma(zs[-1]))
    return zs, activations
