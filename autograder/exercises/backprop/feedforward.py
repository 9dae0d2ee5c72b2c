"""Every z and every activation of a network, forwards. Oracle: torch's own linear layers."""

import torch
from torch.nn import functional

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.backprop.networks import ACTIVATION, copies, network, two_lists, widths_text
from autograder.exercises.backprop.oracles import run
from autograder.exercises.drawing import F64, normal, whole_number

exercise = Exercise("feedforward", points=10, minutes=12, offers=ACTIVATION)

ONE_MORE = "L layers have L - 1 layers of weights, so L - 1 vectors z; but L vectors a, as the input is a¹."


@exercise.check(points=2)
def two_lists_from_layer_to_layer(student, rng):
    "zs has one vector for each layer of weights, activations one more: the input is a¹."
    for widths in ((2, 2), (3, 3, 3, 3)):  # square: what a transposed W does is the next check's to say
        weights, biases = network(rng, widths)
        x = normal(rng, widths[0])
        got = student.feedforward(copies(weights), copies(biases), x.clone())
        n = len(weights)
        two_lists(got, "feedforward", ("zs", "activations"), (n, n + 1), f"In {widths_text(widths)}: {ONE_MORE}")
        checks.close(got[1][0], x, name="activations[0]", why="The first activation is the input itself, unchanged.")
        other = student.feedforward(network(rng, widths)[0], copies(biases), x.clone())
        two_lists(other, "feedforward", ("zs", "activations"), (n, n + 1), f"In {widths_text(widths)}: {ONE_MORE}")
        for i in range(n):
            for name, part in ((f"zs[{i}]", got[0][i]), (f"activations[{i + 1}]", got[1][i + 1])):
                checks.tensor(part, name=name, shape=(widths[i + 1],), dtype=F64)
            checks.that(
                not checks.same(got[0][i], other[0][i]),
                f"zs[{i}] is the same for other weights: it is computed from the weights of its layer, z = W a + b.",
                got=got[0][i],
            )


def forward_mistakes(weights, biases, zs, activations, i):
    """Values of z in layer i that known mistakes give."""
    W, a, z = weights[i], activations[i], zs[i]
    mistakes = {
        "The bias is missing: z = W a + b.": z - biases[i],
        "This is a = σ(z): zs takes z before σ.": activations[i + 1],
        "You add the bias with the wrong sign.": z - 2 * biases[i],
    }
    if W.shape[0] == W.shape[1]:
        mistakes["W is transposed here: W[j, k] leads from neuron k to neuron j, so z = W @ a + b."] = (
            functional.linear(a, W.T) + biases[i]
        )
        if a.dim() == 2 and a.shape[0] == a.shape[1]:
            mistakes["This is W @ X + b, as for one sample: the samples of a batch are rows, so write X @ W.T + b."] = (
                W @ a + biases[i]
            )
    if i:
        mistakes["This layer got z of the layer before as its input: give it a = σ(z)."] = functional.linear(
            zs[i - 1], W, biases[i]
        )
    if i and len(activations[0]) == W.shape[1]:
        mistakes["Every layer got the input x: give it the activations of the layer before it."] = functional.linear(
            activations[0], W, biases[i]
        )
    return mistakes


def check_forward(got, weights, biases, x):
    """Every z and every a, layer by layer, so that the first wrong one is named."""
    zs, activations = run(weights, biases, x)
    two_lists(got, "feedforward", ("zs", "activations"), (len(zs), len(activations)), ONE_MORE)
    checks.close(got[1][0], x, name="activations[0]", why="The first activation is the input itself, unchanged.")
    for i in range(len(weights)):
        mistakes = forward_mistakes(weights, biases, zs, activations, i)
        checks.close(got[0][i], zs[i], name=f"zs[{i}]", why=f"z of layer {i + 2} is W a + b.", mistakes=mistakes)
        checks.close(
            got[1][i + 1],
            activations[i + 1],
            name=f"activations[{i + 1}]",
            why=f"a = σ(z) = 1 / (1 + exp(-z)), elementwise, in layer {i + 2}, the last layer included.",
            mistakes={
                "This is z: σ is missing here.": zs[i],
                "This is tanh(z): the course's σ is 1 / (1 + exp(-z)).": torch.tanh(zs[i]),
                "This is ReLU: the course's σ is 1 / (1 + exp(-z)).": torch.relu(zs[i]),
                "The sign in the exponent is wrong: σ(z) = 1 / (1 + exp(-z)).": torch.sigmoid(-zs[i]),
            },
        )


@exercise.check(points=4, needs="two_lists_from_layer_to_layer")
def every_layer(student, rng):
    "For one sample, every z = W a + b and every a = σ(z)."
    for widths in ((3, 3, 3), (1, 1), (2, 4, 1, 3), (5, 4, 3, 2, 2)):  # square first: no shape hides a transposed W
        weights, biases = network(rng, widths)
        x = normal(rng, widths[0])
        check_forward(student.feedforward(copies(weights), copies(biases), x.clone()), weights, biases, x)


@exercise.check(points=3, needs="two_lists_from_layer_to_layer")
def a_batch_at_once(student, rng):
    "A batch (N, n) goes through in one call: each row of the result belongs to one sample."
    for widths, N, dtype in (((3, 3), 3, F64), ((3, 2), 4, F64), ((4, 3, 5), 1, F64), ((6, 4, 2), 5, torch.float32)):
        weights, biases = network(rng, widths, dtype)
        X = normal(rng, N, widths[0], dtype=dtype)
        got = student.feedforward(copies(weights), copies(biases), X.clone())
        check_forward(got, weights, biases, X)


@exercise.check(points=1, needs="two_lists_from_layer_to_layer")
def leaves_the_network_alone(student, rng):
    "Input, weights and biases are the same after the call."
    for widths in ((3, 3, 2), [whole_number(rng, 1, 5) for _ in range(3)]):
        leaves_alone(student, rng, widths)


def leaves_alone(student, rng, widths) -> None:
    """Check that a call with a network of these three widths changes nothing, and what it returns."""
    weights, biases = network(rng, widths)
    x, before = normal(rng, widths[0]), [p.clone() for p in (*weights, *biases)]
    x_before = x.clone()
    got = student.feedforward(weights, biases, x)
    checks.unchanged(x, x_before, name="x")
    checks.equal((len(weights), len(biases)), (2, 2), name="(len(weights), len(biases)) after the call")
    for i in range(2):
        checks.unchanged(weights[i], before[i], name=f"weights[{i}]")
        checks.unchanged(biases[i], before[2 + i], name=f"biases[{i}]")
    check_forward(got, before[:2], before[2:], x_before)
