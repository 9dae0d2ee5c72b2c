"""The gradients of weights and biases from a layer's error. Oracle: autograd."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.backprop.networks import ACTIVATION, network, two_lists, widths_text
from autograder.exercises.backprop.oracles import autograd, run
from autograder.exercises.drawing import normal
from autograder.exercises.ready_made import DERIVATIVES

exercise = Exercise(
    "gradients",
    points=5,
    minutes=8,
    offers=ACTIVATION,
    forbid=DERIVATIVES,
    instead="Write the backward pass yourself, with the four equations and without autograd.",
)


def layer_inputs(rng, widths):
    """A sample's errors, activations and gradients in a random network: deltas, activations, (dW, db)."""
    weights, biases = network(rng, widths)
    x, y = normal(rng, widths[0]), normal(rng, widths[-1])
    weight_grads, bias_grads, deltas = autograd(weights, biases, x, y)
    return deltas, run(weights, biases, x)[1], weight_grads, bias_grads


def ask_gradients(student, deltas, activations):
    got = student.gradients([d.clone() for d in deltas], [a.clone() for a in activations])
    n = len(deltas)
    two_lists(got, "gradients", ("weight_grads", "bias_grads"), (n, n), "One entry for each layer of weights.")
    return got


def outer_mistakes(i, deltas, activations) -> dict:
    delta, a = deltas[i], activations[i]
    mistakes = {"The outer product is transposed: ∂C/∂W = δ aᵀ has a row for each entry of δ.": torch.outer(a, delta)}
    if len(delta) == len(a):
        mistakes["This is an elementwise product: δ aᵀ is a matrix, torch.outer(δ, a)."] = delta * a
    mistakes["This uses the layer's own a: W^l multiplies a^(l-1), the activation of the layer before."] = torch.outer(
        delta, activations[i + 1]
    )
    return mistakes


def check_weight_grads(student, rng, widths):
    deltas, activations, weight_grads, _ = layer_inputs(rng, widths)
    got, _ = ask_gradients(student, deltas, activations)
    for i, expected in enumerate(weight_grads):
        checks.close(
            got[i],
            expected,
            name=f"weight_grads[{i}]",
            why=f"∂C/∂W = δ aᵀ: entry [j, k] is δ_j a_k; layer {i + 2} of {widths_text(widths)}.",
            mistakes=outer_mistakes(i, deltas, activations),
        )


@exercise.check(points=3)
def outer_products(student, rng):
    "∂C/∂W = δ aᵀ has the shape of W, and the values of autograd."
    for widths in ((1, 1), (3, 2), (4, 2, 3, 1)):
        check_weight_grads(student, rng, widths)


@exercise.check(points=1)
def square_layers(student, rng):
    "Rows belong to δ and columns to a, also where both are equally many."
    check_weight_grads(student, rng, (3, 3, 3))


@exercise.check(points=1, needs="outer_products")
def bias_gradients(student, rng):
    "∂C/∂b = δ, layer by layer."
    for widths in ((3, 2), (4, 2, 3, 1)):
        deltas, activations, _, bias_grads = layer_inputs(rng, widths)
        _, got = ask_gradients(student, deltas, activations)
        for i, expected in enumerate(bias_grads):
            why = f"b moves z one to one, so ∂C/∂b = δ, in layer {i + 2} of {widths_text(widths)}."
            checks.close(got[i], expected, name=f"bias_grads[{i}]", why=why)
