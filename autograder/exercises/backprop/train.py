"""Training of a network on mini-batches. Oracle: a step by autograd, and digits that it was not shown."""

import functools
import itertools

import torch
from torch.nn import functional

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.backprop.backprop import MOST
from autograder.exercises.backprop.last_batch import last_batches_vary
from autograder.exercises.backprop.networks import network, two_lists
from autograder.exercises.backprop.oracles import loss_oracle, run, slope
from autograder.exercises.drawing import normal
from autograder.exercises.ready_made import DERIVATIVES, OPTIMIZERS

exercise = Exercise(
    "train",
    points=10,
    minutes=12,
    uses=("softmax_cross_entropy", "feedforward", "backpropagate_error", "gradients"),
    forbid=(*DERIVATIVES, *OPTIMIZERS),
    instead="The backward pass and the step are yours: no autograd, no torch.optim.",
)


def step_oracle(weights, biases, X, labels, lr):
    """One full-batch step of gradient descent on the cross-entropy, by autograd; the last layer has no σ."""
    parameters = [p.clone().requires_grad_() for p in (*weights, *biases)]
    zs, _ = run(parameters[: len(weights)], parameters[len(weights) :], X)
    grads = torch.autograd.grad(functional.cross_entropy(zs[-1], labels), parameters)
    new = [p.detach() - lr * g for p, g in zip(parameters, grads, strict=True)]
    return new[: len(weights)], new[len(weights) :]


def step_variant(weights, biases, X, labels, lr, *, squashed=False, late=False, squared=False):
    """The same step with a mistake: σ(z) taken for the logits, errors sent back through weights already changed, or
    the squared error of σ(z) as the cost."""
    old, weights, biases = weights, list(weights), list(biases)
    zs, activations = run(weights, biases, X)
    delta = loss_oracle(activations[-1] if squashed else zs[-1], labels)[1]
    if squared:
        wanted = functional.one_hot(labels, delta.shape[1])
        delta = (activations[-1] - wanted) * slope(zs[-1]) / len(X)
    for i in range(len(weights) - 1, -1, -1):
        weights[i] = weights[i] - lr * delta.T @ activations[i]
        biases[i] = biases[i] - lr * delta.sum(dim=0)
        delta = (delta @ (weights if late else old)[i]) * slope(zs[i - 1]) if i else delta
    return weights, biases


def mixed_up(weights, biases, X, labels, lr) -> dict:
    """What a step of the whole batch gives if only the samples, or only their labels, are shuffled, with seed 1."""
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(1))
    return {
        "The samples are shuffled and their labels are not: take the same rows of both, X[rows] and labels[rows].": (
            step_oracle(weights, biases, X[order], labels, lr)
        ),
        "The labels are shuffled and their samples are not: take the same rows of both, X[rows] and labels[rows].": (
            step_oracle(weights, biases, X, labels[order], lr)
        ),
    }


def problem(rng, N: int, widths=(4, 5, 3)):
    weights, biases = network(rng, widths)
    return weights, biases, normal(rng, N, widths[0]), torch.randint(widths[-1], (N,), generator=rng)


def ask_train(student, network_, data, lr, batch_size, epochs, generator):
    copies = [[p.clone() for p in part] for part in network_]
    return like(network_, student.train(*data, *copies, lr, batch_size, epochs, generator))


def like(start, got):
    """Return `got`, a network of the form of `start`."""
    names = "weights", "biases"
    two_lists(got, "train", names, (len(start[0]), len(start[1])), "The trained network.")
    for part, name, given in zip(got, names, start, strict=True):
        for i, p in enumerate(given):
            checks.tensor(part[i], name=f"{name}[{i}]", shape=p.shape, dtype=p.dtype)
    return got


def check_parameters(got, expected, start, why: str, mistakes, **tolerance):
    for part, name in enumerate(("weights", "biases")):
        for i in range(len(expected[part]) - 1, -1, -1):
            moved = expected[part][i] - start[part][i]
            named = {}
            for sentence, value in mistakes.items():  # as a multiple of the right move, or as parameters
                named[sentence] = start[part][i] + value * moved if type(value) is float else value[part][i]
            checks.close(got[part][i], expected[part][i], name=f"{name}[{i}]", why=why, mistakes=named, **tolerance)


@exercise.check(points=3)
def one_step(student, rng):
    "One epoch with one batch is one step of gradient descent on the cross-entropy."
    for widths in ((4, 3), (3, 5, 4), (2, 4, 3, 3)):
        weights, biases, X, labels = problem(rng, 9, widths)
        got = ask_train(student, (weights, biases), (X, labels), 0.3, 9, 1, torch.Generator().manual_seed(1))
        case = (weights, biases, X, labels, 0.3)
        expected = step_oracle(*case)
        mistakes = {
            "Nothing changed: do you store each new weight, and does the loop run?": 0.0,
            "The step is 9 times too long for 9 samples: dlogits belongs to the mean loss, so it is divided by N.": 9.0,
            "It climbs: the step goes against the gradient.": -1.0,
            "softmax_cross_entropy has already divided by N: don't do it twice.": 1 / 9,
            "The learning rate is missing.": 1 / 0.3,
            "The errors went back through new weights: the weights were changed before they were used. "
            "Compute the error of the layer before, and change the weights after.": step_variant(*case, late=True),
            "You use σ(z) of the last layer as the logits: they are zs[-1].": step_variant(*case, squashed=True),
            "This goes down the squared error of σ(z). The cost is the cross-entropy here: softmax_cross_entropy gives "
            "its gradient, for the logits zs[-1].": step_variant(*case, squared=True),
            **mixed_up(*case),
        }
        why = "w − lr ∂L/∂w, all gradients taken at the old weights; the last layer gives logits z, without σ."
        check_parameters(got, expected, (weights, biases), why, mistakes)
    no_loop_over_weights(student, rng)


WIDE = 16  # neurons: enough weights that differences for each of them need more than MOST instructions


def no_loop_over_weights(student, rng) -> None:
    """Check that a step of a wide network is right, and needs few instructions: differences need many a weight."""
    one, other = (problem(rng, 5, (3, WIDE, WIDE, 2)) for _ in range(2))
    calls = [
        (X, labels, weights, biases, 0.3, 5, 1, torch.Generator().manual_seed(1))
        for weights, biases, X, labels in (one, other)
    ]
    count, got = student.ranks("train", 1, lambda _: calls, harness="instructions").results[0]
    why = f"One step with 5 samples, layers {WIDE} wide."
    weights, biases, X, labels = other
    expected = step_oracle(weights, biases, X, labels, 0.3)
    check_parameters(like((weights, biases), got), expected, (weights, biases), why, {})
    checks.that(
        type(count) is int and 0 < count < MOST,
        f"Python runs {count:,} instructions for one step with layers {WIDE} wide: your function goes through the "
        "weights one by one. One pass back through the layers gives all gradients.",
        expected="some thousand for each layer, in matrix products",
    )


@exercise.check(points=2, needs="one_step")
def the_short_last_batch(student, rng):
    "Every sample counts once in an epoch, even in the last, shorter batch."
    weights, biases, X, labels = problem(rng, 1)
    lr, N, size = 1e-6, 7, 3
    data = X.expand(N, -1).clone(), labels.expand(N).clone()
    got = ask_train(student, (weights, biases), data, lr, size, 1, torch.Generator().manual_seed(2))
    expected = step_oracle(weights, biases, X, labels, 3 * lr)
    mistakes = {
        "The last batch is missing: 7 samples in batches of 3 are three batches, of 3, 3 and 1.": 2 / 3,
        "Only one step was made: an epoch has a step for each batch.": 1 / 3,
    }
    why = "Seven equal samples in batches of 3: three steps of the same gradient."
    check_parameters(got, expected, (weights, biases), why, mistakes, rtol=0.0, atol=1e-9)
    batches_are_full(student, rng)


def batches_are_full(student, rng) -> None:
    """Of nine samples eight are equal: the ninth shows how many are in its batch, four or none but itself."""
    weights, biases, X, labels = problem(rng, 2)
    lr, rows = 1e-6, [0] * 8 + [1]
    got = ask_train(student, (weights, biases), (X[rows], labels[rows]), lr, 4, 1, torch.Generator().manual_seed(3))
    ends = [step_oracle(weights, biases, X[[i]], labels[[i]], lr) for i in (0, 1)]
    usual, odd = ((end[0][-1] - weights[-1]).flatten() for end in ends)
    moved = (got[0][-1] - weights[-1]).flatten()
    share = ((moved - 3 * usual) @ (odd - usual) / ((odd - usual) @ (odd - usual))).item()
    counts = min(1 / 4, 1.0, key=lambda right: abs(share - right))
    checks.that(
        abs(share - counts) < 0.02,
        f"9 samples in batches of 4: one of them counts {share:.3g} in the mean of its batch. Batches are of "
        "4, 4 and 1, so a sample counts 1/4 or 1.",
        expected="0.25 or 1",
    )
    start = weights, biases
    expected = [
        [p + (3 - counts) * (a - p) + counts * (b - p) for p, a, b in zip(*part, strict=True)]
        for part in zip(start, *ends, strict=True)
    ]
    why = "Nine samples, eight of them equal, in batches of 4, 4 and 1: three steps."
    check_parameters(got, expected, start, why, {}, rtol=0.0, atol=1e-9)


PAIRS = {pair: tuple({0, 1, 2, 3}.difference(pair)) for pair in itertools.combinations(range(4), 2)}

AGAIN = 8  # seeds, used twice: six networks, so a second one is the same by chance in (1/6)^8 = 6e-7 of the cases


class FourSamples:
    """Four samples in batches of 2: an epoch has one of six results, which tells the samples of its first batch."""

    lr = 2.0

    def __init__(self, rng):
        *self.start, self.X, self.labels = problem(rng, 4)
        self.known: dict[tuple, dict] = {}  # the six results of an epoch, by the first pairs of the epochs before

    def ask(self, student, generator, epochs: int = 1, start=None):
        data = self.X, self.labels
        return ask_train(student, start or self.start, data, self.lr, 2, epochs, generator)

    def ends(self, *before: tuple) -> dict:
        """What an epoch can make of the network, by its first pair, after epochs with the first pairs `before`."""
        if before not in self.known:
            start = self.ends(*before[:-1])[before[-1]] if before else self.start
            self.known[before] = {pair: self.step(self.step(start, pair), PAIRS[pair]) for pair in PAIRS}
        return self.known[before]

    def step(self, network, rows):
        weights, biases = network
        return step_oracle(weights, biases, self.X[list(rows)], self.labels[list(rows)], self.lr)

    def first_pair(self, got, *before: tuple) -> tuple:
        """The samples in the first batch of the epoch whose result is `got`."""
        for pair, end in self.ends(*before).items():
            if all(checks.alike(a, b, 1e-9, 1e-9) for a, b in zip((*got[0], *got[1]), (*end[0], *end[1]), strict=True)):
                return pair
        checks.fail(
            "An epoch of four samples in batches of 2 gave a network that no order of the samples gives: take each "
            "sample once, and make a step for each batch.",
            got=got[1][-1],
            expected=f"one of six networks, such as one with biases[-1] = {show.show(end[1][-1])}",
        )
        raise AssertionError("unreachable")


@exercise.check(points=2, needs="one_step")
def a_new_order_each_epoch(student, rng):
    "The order of the samples comes from the generator, again in each epoch."
    four = FourSamples(rng)
    seeded = [torch.Generator().manual_seed(seed) for seed in range(60)]
    pairs = [four.first_pair(four.ask(student, generator)) for generator in seeded]
    checks.that(
        len(set(pairs)) > 1,
        "60 generators gave the same network: shuffle the samples, with torch.randperm and `generator`.",
    )
    seeded = [torch.Generator().manual_seed(seed) for seed in range(AGAIN)]
    firsts = [four.ask(student, generator) for generator in seeded]
    checks.that(
        [four.first_pair(first) for first in firsts] == pairs[:AGAIN],
        "One seed gave two networks: draw the order from `generator`: torch.randperm takes it.",
    )
    for seed, (first, pair, generator) in enumerate(zip(firsts, pairs, seeded, strict=False)):
        after = four.first_pair(four.ask(student, generator, start=first), pair)
        check_parameters(
            four.ask(student, torch.Generator().manual_seed(seed), epochs=2),
            four.ends(pair)[after],
            four.start,
            "Two epochs in one call equal two calls with one epoch each, if each epoch draws its own order.",
            {"This is the network after one epoch. A `return` inside the loop ends it.": four.ends()[pair]},
        )
    different = len(set(pairs))  # of six; four or fewer by chance: 15 (2/3)^60 = 4e-10
    checks.that(
        different > 4,
        "Four samples in batches of 2 came in two pairings only, for 60 seeds of the generator: a list that is turned "
        "keeps neighbours together. Take a random permutation of all samples."
        if different > 2
        else "Four samples in batches of 2 came in the same two batches for every seed of the generator: shuffle the "
        "samples before you cut them, not the batches.",
    )
    last_batches_vary(functools.partial(ask_train, student), rng)


@exercise.check(points=1, needs="one_step")
def leaves_the_start_alone(student, rng):
    "The network that was passed in is unchanged; a new one is returned."
    four = FourSamples(rng)
    weights, biases = four.start
    before = [p.clone() for p in (*weights, *biases)]
    names = ("weights[0]", "weights[1]", "biases[0]", "biases[1]")
    got = student.train(four.X, four.labels, weights, biases, four.lr, 2, 1, torch.Generator().manual_seed(1))
    for value, old, name in zip((*weights, *biases), before, names, strict=True):
        checks.unchanged(value, old, name=name)
    four.first_pair(like(four.start, got))


@exercise.check(points=2, needs="one_step", seconds=30)
def reads_digits(student, rng):
    "Trained on 1,438 handwritten digits, the network reads at least 95 % of 359 others."
    from hpcdl.data import digits
    from hpcdl.nn.mlp import initial

    split, start = digits(), initial((64, 32, 10), torch.Generator().manual_seed(0))
    weights, biases = ask_train(student, start, (split.x.flatten(1), split.y), 2.0, 32, 30, rng)
    zs, _ = run(weights, biases, split.x_held_out.flatten(1))
    right = (zs[-1].argmax(dim=1) == split.y_held_out).float().mean().item()
    checks.that(
        right >= 0.95,
        f"Your network reads {100 * right:.1f} % of the held-out digits after 30 epochs, expected at least 95 %.",
        why="A 64-32-10 network, lr = 2, batches of 32: a right answer reaches 97 to 98 %, in any order of samples.",
    )
