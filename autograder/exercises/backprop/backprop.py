"""Backpropagation: the gradient of a batch's mean cost. Oracle: autograd."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.backprop.networks import network, two_lists, widths_text
from autograder.exercises.backprop.oracles import autograd, run, slope
from autograder.exercises.drawing import F64, normal
from autograder.exercises.ready_made import DERIVATIVES

exercise = Exercise(
    "backprop",
    points=20,
    minutes=15,
    uses=("output_error", "feedforward", "backpropagate_error", "gradients"),
    forbid=DERIVATIVES,
    instead="Write the backward pass yourself, with the four equations and without autograd.",
    meanings={
        "must match the size": "Two layers of different widths meet: an error belongs with the z of its own layer. zs "
        "begins with layer 2's, so the layer that weights[i] starts from has zs[i - 1]."
    },
)

FEW, MANY = 16, 256  # samples
NARROW, WIDE = 4, 28  # neurons: 7 times as many, and 30 times as many weights
MOST_TIMES = 12  # more than a loop over neurons takes
MOST, MOST_OF_SAMPLES = 200_000, 50_000  # instructions in all, many times as many as without such loops


def variant(weights, biases, X, Y, output=slope, hidden=slope):
    """Mean gradients `(dC/dW, dC/db)` with other factors instead of σ'(z) in the last and in the hidden layers."""
    zs, activations = run(weights, biases, X)
    delta = (activations[-1] - Y) * output(zs[-1])
    weight_grads: list[torch.Tensor] = []
    bias_grads: list[torch.Tensor] = []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i] / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        delta = (delta @ weights[i]) * hidden(zs[i - 1]) if i else None
    return weight_grads, bias_grads


def backprop_mistakes(weights, biases, X, Y, expected) -> dict:
    """What known mistakes give instead of `expected`, in every layer."""
    N = len(X)
    mistakes = {
        "The sign is wrong: the error of the output is (a − y) ⊙ σ'(z).": -1.0,
        "There is a factor 2 too much: C has a factor ½, so ∂C/∂a = a − y.": 2.0,
    }
    if N > 1:
        mistakes[f"This is the sum over the {N} samples: C is their mean, so divide by N = len(X)."] = float(N)
        mistakes["You divide by N twice."] = 1 / N
    scaled = {sentence: [[f * g for g in part] for part in expected] for sentence, f in mistakes.items()}
    return scaled | {
        "σ'(z) is missing in the error of the last layer.": variant(weights, biases, X, Y, output=torch.ones_like),
        "σ'(z) is missing in the errors of the hidden layers.": variant(weights, biases, X, Y, hidden=torch.ones_like),
        "σ'(z) is missing everywhere.": variant(weights, biases, X, Y, torch.ones_like, torch.ones_like),
        "σ(z) replaces its derivative σ'(z).": variant(weights, biases, X, Y, torch.sigmoid, torch.sigmoid),
    }


def check_backprop(student, rng, widths, N, dtype=F64):
    weights, biases = network(rng, widths, dtype)
    X, Y = normal(rng, N, widths[0], dtype=dtype), torch.rand(N, widths[-1], generator=rng, dtype=F64).to(dtype)
    *expected, deltas = autograd(weights, biases, X, Y)
    mistakes = backprop_mistakes(weights, biases, X, Y, expected)
    got, n = student.backprop(weights, biases, X, Y), len(weights)
    two_lists(got, "backprop", ("weight_grads", "bias_grads"), (n, n), "One entry for each layer of weights.")
    for i in range(n - 1, -1, -1):  # from the last layer back, as the errors flow: the first wrong one is the cause
        for part, name in enumerate(("weight_grads", "bias_grads")):
            named, right = {sentence: value[part][i] for sentence, value in mistakes.items()}, expected[part][i]
            reverse = expected[part][n - 1 - i] if 2 * i != n - 1 else None
            if reverse is not None:
                named[
                    "The list runs from the last layer to the first: put each new gradient in front, insert(0, ...)."
                ] = reverse
            if part == 0 and right.shape[0] == right.shape[1]:
                named["The gradient is transposed: delta.T @ a, with a row for each entry of delta."] = right.T
            if part == 1:
                named["This is δ, with a row for each sample: take the mean over the samples, dimension 0."] = (
                    N * deltas[i]
                )
            setting = f"{N} sample{'s' * (N > 1)} in {widths_text(widths)}"
            why = f"{setting}; expected is autograd's gradient of the mean cost."
            checks.close(got[part][i], right, name=f"{name}[{i}]", why=why, mistakes=named)


def compare(got, expected, setting: str) -> None:
    """Check all gradients of a call."""
    names, n = ("weight_grads", "bias_grads"), len(expected[0])
    two_lists(got, "backprop", names, (n, n), "One entry for each layer of weights.")
    for name, part, right in zip(names, got, expected, strict=False):
        for i in range(n):
            checks.close(part[i], right[i], name=f"{setting}: {name}[{i}]")


def work(student, rng, widths, N: int) -> int:
    """Return how many instructions Python runs for N samples, after a call with other numbers; the result must be
    right."""
    first, second = (
        (*network(rng, widths), normal(rng, N, widths[0]), torch.rand(N, widths[-1], generator=rng, dtype=F64))
        for _ in range(2)
    )
    count, got = student.ranks("backprop", 1, lambda _: (first, second), harness="instructions").results[0]
    setting = f"{N} samples in {widths_text(widths)}, a second call"
    compare(got, autograd(*second), setting)
    checks.that(type(count) is int and count > 0, f"{setting}: Python runs {count} instructions, and works in some.")
    return count


def no_loop_over_weights(student, rng) -> None:
    """Check that the gradient comes from few passes: differences need one or two for each weight."""
    narrow, wide = (work(student, rng, (3, width, width + 1, 2), 1) for width in (NARROW, WIDE))
    checks.that(
        wide < min(MOST_TIMES * narrow, MOST),
        f"Python runs {wide:,} instructions for layers {WIDE} wide and {narrow:,} for layers {NARROW} wide: your "
        "function goes through the weights one by one. One pass back through the layers gives all gradients.",
        got=f"{wide:,} instructions, {wide / narrow:.1f} times as many",
        expected="about as many, some thousand for each layer, in matrix products",
    )


@exercise.check(points=4)
def one_row(student, rng):
    "For a batch of one sample, the gradients of autograd."
    for widths in ((2, 1), (3, 4, 2)):
        check_backprop(student, rng, widths, N=1)
    no_loop_over_weights(student, rng)


@exercise.check(points=6)
def the_mean_of_a_batch(student, rng):
    "For a batch, the gradient of the mean cost, not of the sum."
    for widths, N, dtype in (((3, 2), 5, F64), ((2, 3, 2), 7, F64), ((4, 6, 3), 32, torch.float32)):
        check_backprop(student, rng, widths, N, dtype)
    no_loop_over_weights(student, rng)


@exercise.check(points=4, needs="one_row")
def any_depth_and_width(student, rng):
    "Networks of two to eight layers, some of them one neuron wide."
    for _ in range(6):
        depth = int(torch.randint(2, 9, (), generator=rng))
        widths = tuple(torch.randint(1, 7, (depth,), generator=rng).tolist())
        check_backprop(student, rng, widths, N=int(torch.randint(1, 9, (), generator=rng)))


@exercise.check(points=4, needs="the_mean_of_a_batch", seconds=20)
def no_loop_over_samples(student, rng):
    "Python has as much to do for a batch of 256 samples as for one of 16: no loop over samples."
    few, many = (work(student, rng, (4, 5, 3), N) for N in (FEW, MANY))
    checks.that(
        many < min(2 * few, MOST_OF_SAMPLES),
        f"Python runs {many:,} instructions for {MANY} samples and {few:,} for {FEW}: your function goes through them "
        "one by one. One matrix product per layer, delta.T @ a, sums over all samples at once.",
        got=f"{many:,} instructions of Python for {MANY} samples",
        expected=f"about as many as for {FEW} samples, some thousand for each layer",
    )


@exercise.check(points=2, needs="one_row")
def leaves_parameters_alone(student, rng):
    "Weights, biases and data are the same after the call: gradients are computed, nothing is trained yet."
    weights, biases = network(rng, (3, 3, 2))
    X, Y = normal(rng, 1, 3), normal(rng, 1, 2)
    names = ("weights[0]", "weights[1]", "biases[0]", "biases[1]", "X", "Y")
    before = [t.clone() for t in (*weights, *biases, X, Y)]
    got = student.backprop(weights, biases, X, Y)
    for value, old, name in zip((*weights, *biases, X, Y), before, names, strict=True):
        checks.unchanged(value, old, name=name)
    compare(got, autograd(weights, biases, X, Y), "1 sample in a 3-3-2 network")
