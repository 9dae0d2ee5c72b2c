"""Wrong answers to `feedforward`."""

from autograder.bank.backprop.later import BACKPROP, TRAIN
from autograder.bank.slips import answers_to

_, slip = answers_to("backprop.feedforward")

FORWARD = ("every_layer", "a_batch_at_once", "leaves_the_network_alone")

slip(
    "no bias",
    "for W, b in zip(weights, biases, strict=True):\n        zs.append(activations[-1] @ W.T + b)",
    "for W in weights:\n        zs.append(activations[-1] @ W.T)",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="The bias is missing",
)
slip(
    "no activation function",
    "activations.append(sigma(zs[-1]))",
    "activations.append(zs[-1])",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="σ is missing here",
)
slip(
    "zs hold activations",
    "zs.append(activations[-1] @ W.T + b)\n        activations.append(sigma(zs[-1]))",
    "activations.append(sigma(activations[-1] @ W.T + b))\n        zs.append(activations[-1])",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="zs takes z before σ",
)
slip(
    "zeros of the right shapes",
    "zs.append(activations[-1] @ W.T + b)",
    "zs.append(0 * b)",
    fails=("two_lists_from_layer_to_layer", *FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="is the same for other weights",
)
slip(
    "the input is left out of activations",
    "zs, activations = [], [x]",
    "zs, activations = [], []",
    "zs.append(activations[-1] @ W.T + b)\n        activations.append(sigma(zs[-1]))",
    "zs.append(x @ W.T + b)\n        x = sigma(zs[-1])\n        activations.append(x)",
    fails=(
        "two_lists_from_layer_to_layer",
        *FORWARD,
        *BACKPROP,
        *TRAIN,
        "backprop.leaves_parameters_alone",
    ),
    says="activations has 1 item, expected 2",
)
slip(
    "the next layer takes z, not a",
    "zs.append(activations[-1] @ W.T + b)\n        activations.append(sigma(zs[-1]))",
    "x = x @ W.T + b\n        zs.append(x)\n        activations.append(sigma(x))",
    fails=(*FORWARD, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"),
    says="got z of the layer before",
)
slip(
    "writes into the biases",
    "zs.append(activations[-1] @ W.T + b)",
    "b += activations[-1] @ W.T if activations[-1].dim() == 1 else 0\n"
    "        zs.append(b if activations[-1].dim() == 1 else activations[-1] @ W.T + b)",
    fails="leaves_the_network_alone",
    says="changed its argument biases[0]",
)
slip(
    "W @ x for a batch too",
    "zs.append(activations[-1] @ W.T + b)",
    "zs.append(W @ activations[-1] + b)",
    fails=("a_batch_at_once", *BACKPROP, "backprop.leaves_parameters_alone", *TRAIN),
    says="so write X @ W.T + b",
)
slip(
    "sigma left out in a network of 3, 3 and 2 neurons",
    "activations.append(sigma(zs[-1]))",
    "activations.append(zs[-1] if [len(b) for b in biases] == [3, 2] and x.dim() == 1 else sigma(zs[-1]))",
    fails="leaves_the_network_alone",
    says="σ is missing here",
)
