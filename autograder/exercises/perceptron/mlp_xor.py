"""XOR by three perceptrons. Oracle: the four corners, and whether each neuron's answers are separable."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.perceptron.samples import XOR, XOR_LABELS, samples
from hpcdl.nn import perceptron as oracle

exercise = Exercise("mlp_xor", points=20, minutes=12, uses=("predict",))


def both_layers(student, X):
    """What the student's network answers, (H, yhat), each with its form checked and every entry +1 or -1."""
    result = student.mlp_xor(X.clone())
    form = (
        "mlp_xor returns two things: H, the outputs of the two hidden neurons, and yhat, the answers of the output "
        "neuron."
    )
    checks.that(type(result) in (tuple, list) and len(result) == 2, form, got=result)
    H, yhat = result
    checks.tensor(H, name="H", shape=(len(X), 2))
    checks.tensor(yhat, name="yhat", shape=(len(X),))
    for name, values in (("H", H), ("yhat", yhat)):
        step = f"Each neuron is a step: every entry of {name} is +1 or -1."
        zero = " Labels of 0 belong to another convention." if bool((values == 0).any()) else ""
        checks.that(bool((values.double().abs() == 1).all()), step + zero, got=values)
    return H.float(), yhat.float()


@exercise.check(points=8)
def four_corners(student, rng):
    "yhat is +1 where the signs of x1 and x2 differ, and -1 where they agree."
    for order in (torch.randperm(4, generator=rng), torch.randperm(4, generator=rng), torch.tensor([2, 0, 3, 1])):
        corners(student, XOR[order], XOR_LABELS[order])
    among_others(student, rng)


def corners(student, X, labels) -> None:
    _, yhat = both_layers(student, X)
    x1, x2 = X[:, 1], X[:, 2]
    either, both = torch.maximum(x1, x2), torch.minimum(x1, x2)
    checks.close(
        yhat,
        labels,
        name="yhat",
        why=f"The rows of X are {X.int().tolist()}.",
        mistakes={
            "This is the opposite of XOR: +1 where the signs agree. Change the signs of the output's weights.": -labels,
            "This is OR. One line does OR; for XOR the corner (+1, +1) must be -1 as well.": either,
            "It is +1 everywhere. Does the output neuron have its bias v_0? With only h1 and h2, h1 = -h2 gives z = "
            "0, and that counts as +1.": torch.ones(4),
            "This is AND: +1 only at (+1, +1).": both,
            "This is NAND. For XOR the corner (-1, -1) must be -1 as well.": -both,
        },
    )


@exercise.check(points=4, needs="four_corners")
def any_batch(student, rng):
    "It works for any number of rows in any order."
    X, H, _ = among_others(student, rng)
    hidden = torch.stack([H[(corner == X).all(dim=1)][0] for corner in XOR])
    sizes = (3, 17, 4, *torch.randint(1, 40, (3,), generator=rng).tolist())
    for corner in [*torch.arange(4).split(1), *(torch.randint(0, 4, (n,), generator=rng) for n in sizes)]:
        H, yhat = both_layers(student, XOR[corner])
        checks.close(yhat, XOR_LABELS[corner], name=f"yhat for a batch of {len(corner)}")
        checks.close(
            H,
            hidden[corner],
            name=f"H for a batch of {len(corner)}",
            why="The same rows among 200 others have these H: the same two neurons see every row of every batch.",
        )


def plane_points(rng: torch.Generator) -> torch.Tensor:
    """The four corners and 200 points between and around them, in random order, none on a line with short weights."""
    points = torch.cat([XOR, samples(200, 2, rng) + torch.tensor([0.0, 0.0137, 0.0291])])
    return points[torch.randperm(len(points), generator=rng)]


def among_others(student, rng):
    """X, H and yhat for `plane_points`; at the corners yhat is XOR there, too, so that one network answers for both."""
    X = plane_points(rng)
    H, yhat = both_layers(student, X)
    at = X[:, 1:].abs().eq(1).all(dim=1)
    checks.close(
        yhat[at],
        -X[at, 1] * X[at, 2],
        name="yhat of the four corners, in a batch with 200 other points",
        why=f"These rows of X are {X[at].int().tolist()}. The answer for a row depends on this row only: the same "
        "three neurons see every row of every batch.",
    )
    return X, H, yhat


@exercise.check(points=4, needs="four_corners")
def hidden_neurons_draw_lines(student, rng):
    "Each hidden neuron is a perceptron: a line in the plane, +1 on one side and -1 on the other."
    X, H, _ = among_others(student, rng)
    for j in range(2):
        checks.that(
            oracle.separable(X, H[:, j]),
            f"No line has all points that hidden neuron {j} calls +1 on one side. "
            "A neuron may only take the sign of w_0 + w_1 x1 + w_2 x2: no products, no ifs.",
            got=f"column {j} of H on 204 points",
        )


@exercise.check(points=4, needs="four_corners")
def output_neuron_draws_a_line(student, rng):
    "The output neuron is a perceptron, too: its only inputs are 1, h1 and h2."
    _, H, yhat = among_others(student, rng)
    checks.that(
        oracle.separable(oracle.with_bias(H), yhat),
        "No perceptron gives these yhat from these H. The output neuron sees only (1, h1, h2), "
        "and takes the sign of v_0 + v_1 h1 + v_2 h2.",
        got="yhat and H on the four corners and 200 points around them",
    )
