"""Stochastic gradient descent. Oracle: a trusted gradient that remembers where and for which samples it was asked."""

import itertools
import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.elements import items
from autograder.checks.orders import SHUFFLED, drawn_again, shuffled
from autograder.exercises.drawing import F64, normal
from autograder.exercises.gradient_descent.drawing import integer
from autograder.exercises.ready_made import LOADERS, OPTIMIZERS

exercise = Exercise(
    "sgd",
    points=15,
    minutes=8,
    uses=("minibatches",),
    forbid=(*OPTIMIZERS, *LOADERS),
    instead="Write the step yourself; the optimizers of torch.optim are only for comparison.",
)

AT_W0 = "You compute every gradient at w0: compute it at the last point of the path."
LEAST = 1e-4  # of a gradient is in a step: lr / batch_size is larger in each check
DRAWN = "Draw the batches of each epoch with minibatches."
FALSE_ALARM = 1e-9  # of each statistical check


class Recorder:
    """A trusted gradient, H-valley per sample, that remembers where it was asked and for which indices."""

    def __init__(self, rng, n, d):
        self.centres, self.asked, self.__name__ = normal(rng, n, d), [], "grad"

    def full(self, w, batch=slice(None)):
        """The mean over the batch of the gradients of (w - c_i)^2."""
        return 2 * (w - self.centres[batch]).mean(dim=0)

    def __call__(self, w, batch=None):
        checks.that(batch is not None, "grad takes two arguments here, the weights and a batch: grad(w, batch).")
        checks.tensor(w, name="the w that you pass to grad", shape=self.centres[0].shape)
        checks.tensor(batch, name="the batch that you pass to grad", dtype=torch.int64)
        checks.that(
            batch.dim() == 1 and batch.numel() > 0 and bool(((batch >= 0) & (batch < len(self.centres))).all()),
            f"grad takes the indices of a batch, a 1-d tensor of numbers below n = {len(self.centres)}.",
            got=batch,
        )
        self.asked.append((w.clone(), batch.clone()))
        return self.full(w, batch)

    def led(self, path, w0):
        """Check that every row of the path comes from the gradient of its batch, whatever the step's length."""
        self.was_asked()
        checks.tensor(path, name="path", shape=(1 + len(self.asked), len(w0)), dtype=F64)
        checks.close(path[0], w0, name="path[0]", why="The path begins at w0.")
        moves, gradients = path.diff(dim=0), torch.stack([self.full(w, batch) for w, batch in self.asked])
        along = (moves * gradients).sum(1, keepdim=True) / (gradients**2).sum(1, keepdim=True)
        aside = (moves - along * gradients).abs().amax(1) > 1e-9 * (1 + path.abs().max())
        wrong = (aside | (along[:, 0].abs() < LEAST)).nonzero().flatten().tolist()
        checks.that(
            not wrong,
            f"path[{wrong[0] + 1 if wrong else 0}] does not come from the gradient that you asked for: every step goes "
            "against the gradient of its batch, w - lr * grad(w, batch).",
            got=path,
        )

    def was_asked(self):
        checks.that(bool(self.asked), "You never call grad: each step goes against the gradient of its batch.")

    def epochs(self, steps):
        """The indices in the order of each epoch, `steps` calls to an epoch."""
        self.was_asked()
        batches = [batch for _, batch in self.asked]
        return [torch.cat(batches[i : i + steps]).tolist() for i in range(0, len(batches), steps)]


@exercise.check(points=3)
def one_row_per_step(student, rng):
    "The path starts at w0 and has a row for every step of every epoch."
    for n, batch_size, epochs in ((12, 4, 2), (10, 3, 3), (5, 9, 2)):
        grad, w0 = Recorder(rng, n, 2), normal(rng, 2)
        path = student.sgd(grad, n, w0.clone(), 0.1, batch_size, epochs, torch.Generator().manual_seed(1))
        steps = math.ceil(n / batch_size)
        checks.tensor(path, name="path", dtype=F64)
        short = path.dim() == 2 and len(path) != 1 + epochs * steps
        checks.that(
            not short,
            f"path has {items(len(path) if short else 0, 'row')}; {epochs} epochs of {steps} batches make "
            f"1 + {epochs} x {steps} = {1 + epochs * steps}: one after each batch, and w0 first.",
            got=f"shape {tuple(path.shape)}",
            expected=f"shape {(1 + epochs * steps, 2)}",
        )
        checks.tensor(path, name="path", shape=(1 + epochs * steps, 2))
        grad.led(path, w0)


@exercise.check(points=4, needs="one_row_per_step")
def each_step_follows_its_batch(student, rng):
    "Each step starts at the last point and goes against the gradient of its own batch."
    grad, w0, lr = Recorder(rng, 9, 3), normal(rng, 3), 0.2
    before = w0.clone()
    path = student.sgd(grad, 9, w0, lr, 4, 2, torch.Generator().manual_seed(integer(rng, 0, 2**31)))
    checks.tensor(path, name="path", shape=(7, 3), dtype=F64)
    checks.equal(len(grad.asked), 6, name="calls of grad", why="One gradient for each step.")
    sizes = [len(batch) for _, batch in grad.asked]
    checks.equal(sizes, [4, 4, 1] * 2, name="the sizes of the batches for n = 9, batch_size = 4")
    asked = torch.stack([w for w, _ in grad.asked])
    at_w0 = {AT_W0: before.expand(asked.shape)}
    checks.close(asked, path[:-1], name="the points at which you asked for a gradient", mistakes=at_w0)
    gradients = torch.stack([grad.full(w, batch) for w, batch in grad.asked])
    checks.close(
        path[1:],
        path[:-1] - lr * gradients,
        name="path[1:]",
        mistakes={
            "You climb: subtract the gradient, w - lr * grad(w, batch).": path[:-1] + lr * gradients,
            "You left out the learning rate.": path[:-1] - gradients,
            "You divide by the size of the batch: grad returns a mean already.": (
                path[:-1] - lr * gradients / torch.tensor(sizes)[:, None]
            ),
            "A short batch has a shorter step here: its gradient is a mean, too, so take the whole step.": (
                path[:-1] - lr * gradients * torch.tensor(sizes)[:, None] / 4
            ),
        },
    )
    checks.unchanged(w0, before, name="w0")


@exercise.check(points=3, needs="one_row_per_step")
def every_sample_each_epoch(student, rng):
    "Each epoch sees every sample once, in a new order."
    n, batch_size, steps = integer(rng, 13, 16), 4, 4
    grad = Recorder(rng, n, 2)
    generator = torch.Generator().manual_seed(integer(rng, 0, 2**31))
    w0 = normal(rng, 2)
    grad.led(student.sgd(grad, n, w0.clone(), 0.05, batch_size, 4, generator), w0)
    orders = grad.epochs(steps)
    for order in orders:
        checks.equal(sorted(order), list(range(n)), name="the indices of one epoch, sorted")
    checks.that(
        orders[0] != list(range(n)),
        "The samples come in their own order 0, 1, 2, ...: shuffle them, once per epoch.",
        got=orders[0],
    )
    again = Recorder(rng, n, 2)
    seed = integer(rng, 0, 2**31)
    for recorder in (first := Recorder(rng, n, 2), again):
        own = torch.Generator().manual_seed(seed)
        recorder.led(student.sgd(recorder, n, w0.clone(), 0.05, batch_size, 2, own), w0)
    checks.that(
        first.epochs(steps) == again.epochs(steps),
        "Two generators with the same seed gave different batches: draw every order from `generator`, as "
        "torch.randperm(n, generator=generator) does.",
    )
    runs = [bool((batch.diff() == 1).all()) for _, batch in grad.asked if len(batch) > 1]
    checks.that(
        not all(runs), "Each batch is a run of neighbours: shuffle the samples before you cut, not the batches."
    )
    checks.that(
        all(a != b for a, b in itertools.pairwise(orders)),
        "Every epoch has the same order: shuffle inside the loop over epochs, not once before it.",
        got=orders[1],
    )
    for few in (integer(rng, 17, 20), integer(rng, 21, 48)):  # an order of its own by chance: once in 17!
        other = Recorder(rng, few, 2)
        other.led(student.sgd(other, few, w0.clone(), 0.05, few, 1, generator), w0)
        checks.that(
            other.epochs(1)[0] != list(range(few)),
            f"The {few} samples of an epoch come in their own order 0, 1, 2, ...: shuffle any number of them.",
        )
    long = Recorder(rng, SHUFFLED, 2)
    long.led(student.sgd(long, SHUFFLED, w0.clone(), 0.05, 10, 2, generator), w0)
    for order in long.epochs(5):
        checks.equal(sorted(order), list(range(SHUFFLED)), name="the indices of one epoch, sorted")
        shuffled(order, advice=DRAWN)
    drawn_again(*long.epochs(5), advice=DRAWN)


@exercise.check(points=2, needs="one_row_per_step")
def whole_batch_is_gradient_descent(student, rng):
    "With batch_size = n it is gradient descent on all the data."
    n, lr, epochs = 9, 0.15, 6
    grad, w0 = Recorder(rng, n, 3), normal(rng, 3)
    path = student.sgd(grad, n, w0.clone(), lr, n, epochs, torch.Generator().manual_seed(3))
    mean = grad.centres.mean(dim=0)
    exact = torch.stack([mean + (1 - 2 * lr) ** k * (w0 - mean) for k in range(epochs + 1)])
    k = torch.arange(epochs + 1, dtype=w0.dtype)[:, None]
    checks.close(path, exact, name="path", mistakes={AT_W0: w0 - k * 2 * lr * (w0 - mean)})


@exercise.check(points=3, needs="one_row_per_step")
def batches_are_fair(student, rng):
    "Over many epochs every sample is equally often in the first batch (false alarm once in 1e9)."
    n, batch_size, epochs = 12, 6, 150
    grad, w0 = Recorder(rng, n, 2), normal(rng, 2)
    generator = torch.Generator().manual_seed(integer(rng, 0, 2**31))
    grad.led(student.sgd(grad, n, w0.clone(), 0.01, batch_size, epochs, generator), w0)
    first = torch.cat([batch for _, batch in grad.asked[:: n // batch_size]])
    counts = torch.bincount(first, minlength=n)
    # Hoeffding: P(|count - epochs B/n| >= t) <= 2 exp(-2 t^2 / epochs) for each of the n samples.
    expected, allowed = epochs * batch_size / n, math.sqrt(epochs / 2 * math.log(2 * n / FALSE_ALARM))
    worst = int((counts - expected).abs().argmax())
    checks.that(
        abs(int(counts[worst]) - expected) <= allowed,
        f"Sample {worst} was in the first batch of {int(counts[worst])} of {epochs} epochs; chance allows "
        f"{expected:.0f} ± {allowed:.0f}. A batch must be a random part of the data, or its gradient points elsewhere.",
    )
