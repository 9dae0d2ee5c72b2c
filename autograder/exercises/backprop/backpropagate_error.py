"""The error of a layer from the error of the next one. Oracle: autograd's ∂C/∂z."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.backprop.networks import ACTIVATION, network, widths_text
from autograder.exercises.backprop.oracles import autograd, run, slope
from autograder.exercises.drawing import normal, whole_number
from autograder.exercises.ready_made import DERIVATIVES

exercise = Exercise(
    "backpropagate_error",
    points=5,
    minutes=8,
    offers=ACTIVATION,
    forbid=DERIVATIVES,
    instead="Write the backward pass yourself, with the four equations and without autograd.",
)


def back_mistakes(delta, W, z) -> dict:
    back = delta @ W
    mistakes = {
        "σ'(z) is missing: multiply by the slope at this layer's z.": back,
        "You multiplied by σ(z) instead of σ'(z) = σ(z) (1 − σ(z)).": back * torch.sigmoid(z),
    }
    if W.shape[0] == W.shape[1]:
        mistakes |= {
            "W is not transposed: forward it is W a, backward Wᵀ δ.": delta @ W.T * slope(z),
            "W is not transposed, and σ'(z) is missing.": delta @ W.T,
            "The weights are missing: the error comes back through Wᵀ.": delta * slope(z),
        }
        if delta.dim() == 2 and len(delta) == len(W):
            mistakes["This is Wᵀ δ, as for one sample: the errors of a batch are rows, so write δ W."] = (
                W.T @ delta * slope(z)
            )
    return mistakes


def check_back(student, delta, W, z):
    got = student.backpropagate_error(delta.clone(), W.clone(), z.clone())
    expected = ((delta.double() @ W.double()) * slope(z.double())).to(z.dtype)
    checks.close(
        got,
        expected,
        name="backpropagate_error(delta, w_next, z)",
        why="δˡ = ((W^(l+1))ᵀ δ^(l+1)) ⊙ σ'(zˡ), of the shape of zˡ.",
        mistakes=back_mistakes(delta, W, z),
    )


@exercise.check(points=3)
def one_layer_back(student, rng):
    "The error of a layer, from the error of the next one."
    for n, m in ((3, 3), (3, 2), (2, 4), (1, 3)):  # square first: no shape hides a W that is not transposed
        check_back(student, normal(rng, m), normal(rng, m, n), normal(rng, n))


@exercise.check(points=1)
def a_batch_one_layer_back(student, rng):
    "A batch of errors (N, m) comes back as a batch (N, n)."
    for N, n, m in ((3, 3, 3), (5, 3, 2), (1, 2, 4)):
        check_back(student, normal(rng, N, m), normal(rng, m, n), normal(rng, N, n))
    N, n, m = (whole_number(rng, 1, 5) for _ in range(3))
    delta, W, z = normal(rng, N, m), normal(rng, m, n), normal(rng, N, n)
    got = checks.leaves_alone(student.backpropagate_error, delta=delta, w_next=W, z=z)
    checks.close(got, delta @ W * slope(z), name="backpropagate_error(delta, w_next, z)")


@exercise.check(points=1, needs="one_layer_back")
def all_the_way_back(student, rng):
    "Applied layer after layer, it gives what autograd calls ∂C/∂z in every layer."
    widths = (3, 4, 2, 5, 2)
    weights, biases = network(rng, widths)
    x, y = normal(rng, 3), normal(rng, 2)
    _, _, deltas = autograd(weights, biases, x, y)
    zs, _ = run(weights, biases, x)
    delta = deltas[-1]
    for i in range(len(zs) - 2, -1, -1):
        delta = student.backpropagate_error(delta, weights[i + 1], zs[i])
        checks.close(delta, deltas[i], name=f"delta of layer {i + 2}", why=f"∂C/∂z in {widths_text(widths)}.")
