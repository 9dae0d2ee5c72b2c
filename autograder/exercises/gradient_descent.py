"""Lab 02: gradient descent, one step at a time, then in parallel. The checks of its eight exercises.

Oracles are independent of the solutions: closed forms, float64 autograd, torch.optim, eigenvalues, counted indices.
"""

import itertools
import math

import torch
from torch.optim.adam import adam as torch_adam_update
from torch.optim.sgd import sgd as torch_sgd_update

from autograder import checks
from autograder.authoring import Lab

lab = Lab("gradient_descent", number=2, title="One step at a time, then in parallel")

F32, F64 = torch.float32, torch.float64
FALSE_ALARM = 1e-9  # of each statistical check


def normal(rng, *shape, dtype=F64):
    return torch.randn(*shape, generator=rng, dtype=F64).to(dtype)


def integer(rng, low, high):
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def small(rng, *shape, dtype=F64):
    """Whole numbers from ±1 to ±4: the first input of a check is one that a reader can follow by hand."""
    size = torch.randint(1, 5, shape, generator=rng)
    return (size * (2 * torch.randint(0, 2, shape, generator=rng) - 1)).to(dtype)


def valley(rng, curvatures):
    """A symmetric, non-diagonal Hessian with the given eigenvalues."""
    Q = torch.linalg.qr(normal(rng, len(curvatures), len(curvatures))).Q
    H = Q @ torch.diag(torch.as_tensor(curvatures, dtype=F64)) @ Q.T
    return (H + H.T) / 2


def regression(rng, n, d, dtype=F64):
    """Random w (d,), X (n, d), y (n,); whole numbers where n is small."""
    draw = small if n <= 3 else normal
    return draw(rng, d, dtype=dtype), draw(rng, n, d, dtype=dtype), draw(rng, n, dtype=dtype)


# 1 ---------------------------------------------------------------------------------------------- gradient descent

SAME_TENSOR = (
    "Every row is the last point: the path holds the same tensor many times. "
    "Make a new one at each step, w = w - lr * grad(w)."
)

descent = lab.exercise("gradient_descent", points=10, minutes=5)


@descent.check(points=2)
def path_starts_at_w0(student, rng):
    "The path has steps + 1 rows, and the first is w0."

    def grad(w):
        return w

    for d, steps in ((1, 3), (5, 4), (2, 0)):
        w0 = small(rng, d)
        path = student.gradient_descent(grad, w0.clone(), 0.5, steps)
        checks.tensor(path, name="path", shape=(steps + 1, d), dtype=F64)
        mistakes = {SAME_TENSOR: path[-1]} if steps else {}
        checks.close(path[0], w0, name="path[0]", why="The path begins at w0; here grad(w) = w.", mistakes=mistakes)


def quadratic_path(H, c, w0, lr, steps):
    """Where descent on the valley (w - c) . H (w - c) / 2 goes: w_k = c + (I - lr H)^k (w0 - c), in float64."""
    H, c, w0 = H.double(), c.double(), w0.double()
    M = torch.eye(len(c), dtype=F64) - lr * H
    return torch.stack([c + torch.linalg.matrix_power(M, k) @ (w0 - c) for k in range(steps + 1)])


def descent_mistakes(H, c, w0, lr, steps):
    right = quadratic_path(H, c, w0, lr, steps)
    return {
        "You climb: the gradient points uphill, so subtract it, w - lr * grad(w).": quadratic_path(
            H, c, w0, -lr, steps
        ),
        SAME_TENSOR: right[-1].expand(right.shape),
        "You left out the learning rate: one step is lr * grad(w).": quadratic_path(H, c, w0, 1.0, steps),
    }


@descent.check(points=5, needs="path_starts_at_w0")
def follows_the_closed_form(student, rng):
    "On a quadratic valley every point of the path is where theory says."
    for d, dtype in ((1, F64), (3, F64), (5, F32)):
        H, c, w0 = (t.to(dtype) for t in (valley(rng, [0.5 + i for i in range(d)]), normal(rng, d), normal(rng, d)))
        lr, steps = 0.11, 12

        def grad(w, H=H, c=c):
            return H @ (w - c)

        checks.close(
            student.gradient_descent(grad, w0.clone(), lr, steps),
            quadratic_path(H, c, w0, lr, steps).to(dtype),
            name="path",
            why="w_k = c + (I - lr H)^k (w0 - c) when grad(w) = H (w - c).",
            mistakes=descent_mistakes(H, c, w0, lr, steps),
        )


@descent.check(points=1, needs="path_starts_at_w0")
def one_gradient_per_step(student, rng):
    "The gradient is computed once per step: it is what costs time."
    grad = checks.counted(lambda w: 0.5 * w)
    student.gradient_descent(grad, normal(rng, 4), 0.1, 9)
    checks.equal(grad.calls, 9, name="calls of grad in 9 steps")


@descent.check(points=2, needs="path_starts_at_w0")
def leaves_w0_alone(student, rng):
    "Your function leaves its argument w0 as it was."
    w0 = normal(rng, 3)
    before = w0.clone()
    student.gradient_descent(lambda w: 2 * w, w0, 0.1, 5)
    checks.unchanged(w0, before, name="w0")


# 2 ---------------------------------------------------------------------------------------------- loss and gradient

mse = lab.exercise("mse_grad", points=10, minutes=6, functions=("mse_loss", "mse_grad"))


@mse.check(points=3)
def loss_is_the_mean(student, rng):
    "mse_loss is the mean of the squared errors, one number."
    for n, d, dtype in ((3, 2, F64), (1, 1, F64), (30, 5, F32)):
        w, X, y = regression(rng, n, d, dtype)
        squares = (X.double() @ w.double() - y.double()) ** 2
        checks.close(
            student.mse_loss(w, X, y),
            float(squares.mean()),
            name="loss",
            rtol=2e-5 if dtype == F32 else 1e-9,
            mistakes={
                f"This is the sum over the {n} samples: divide by n, so that it does not grow with the data.": float(
                    squares.sum()
                ),
                "This is half the mean: the course's loss has no factor 1/2.": float(squares.mean() / 2),
                "This is the root of the loss: leave the square.": float(squares.mean().sqrt()),
                "These are absolute errors: square them.": float(squares.sqrt().mean()),
            },
        )


def autograd(w, X, y):
    w = w.double().requires_grad_()
    loss = torch.nn.functional.mse_loss(X.double() @ w, y.double())
    return torch.autograd.grad(loss, w)[0].detach()


def gradient_mistakes(exact, n):
    return {
        f"This is the gradient of the sum: divide by the number of samples, n = {n}.": n * exact,
        "The factor 2 is missing: the derivative of a square, u^2, is 2 u.": exact / 2,
        f"The factor 2 and the division by n = {n} are missing: the loss is a mean of squares.": n * exact / 2,
        "The sign is wrong: the error is X @ w - y, in this order.": -exact,
        "You divide by d, the number of weights: divide by n = len(y).": n * exact / len(exact),
    }


@mse.check(points=5)
def gradient_equals_autograd(student, rng):
    "mse_grad is the gradient that float64 autograd finds."
    for n, d, dtype in ((3, 2, F64), (8, 3, F64), (40, 6, F32)):
        w, X, y = regression(rng, n, d, dtype)
        exact = autograd(w, X, y).to(dtype)
        checks.close(student.mse_grad(w, X, y), exact, name="gradient", mistakes=gradient_mistakes(exact, n))


@mse.check(points=1, needs="gradient_equals_autograd")
def one_sample_one_weight(student, rng):
    "The gradient keeps the shape (d,) for one weight and for one sample."
    for n, d in ((1, 4), (6, 1), (1, 1)):
        w, X, y = regression(rng, n, d)
        checks.close(student.mse_grad(w, X, y), autograd(w, X, y), name="gradient")


@mse.check(points=1, needs=("loss_is_the_mean", "gradient_equals_autograd"))
def data_stay_as_they_were(student, rng):
    "Neither function changes w, X or y."
    w, X, y = regression(rng, 5, 2)
    before = [t.clone() for t in (w, X, y)]
    student.mse_loss(w, X, y)
    student.mse_grad(w, X, y)
    for value, old, name in zip((w, X, y), before, "wXy", strict=True):
        checks.unchanged(value, old, name=name)


# 3 ---------------------------------------------------------------------------------------------- learning rate

stable = lab.exercise("max_stable_lr", points=15, minutes=8)


@stable.check(points=3)
def diagonal_valley(student, rng):
    "For a diagonal Hessian the limit is 2 over its largest entry."
    curvatures = torch.tensor([0.3, 4.0, 1.0], dtype=F64)[torch.randperm(3, generator=rng)] * (1 + integer(rng, 0, 4))
    checks.close(
        student.max_stable_lr(torch.diag(curvatures)),
        2 / float(curvatures.max()),
        name="limit",
        mistakes={
            "This is 1/λmax: there a step lands on the valley floor. It may overshoot by as much again: 2/λmax.": 1
            / float(curvatures.max()),
            "This is 2/λmin: the steepest direction diverges first, so the largest eigenvalue counts.": 2
            / float(curvatures.min()),
            "This is λmax itself: the limit of the learning rate is 2/λmax.": float(curvatures.max()),
        },
    )


@stable.check(points=5)
def turned_valley(student, rng):
    "For a Hessian that is not diagonal its largest eigenvalue decides."
    for curvatures in ([0.4, 3.0], [0.2, 1.0, 2.5, 7.0]):
        H = valley(rng, curvatures)
        checks.close(
            student.max_stable_lr(H),
            2 / max(curvatures),
            name="limit",
            why=f"The eigenvalues of this Hessian are {', '.join(map(str, curvatures))}.",
            mistakes={
                "You took the largest entry on the diagonal: the steepest direction need not lie along an axis. "
                "Use torch.linalg.eigvalsh.": 2 / float(H.diagonal().max()),
                "You took the largest entry: use the largest eigenvalue, torch.linalg.eigvalsh.": 2 / float(H.max()),
                "You divided by the trace, the sum of all eigenvalues: only the largest counts.": 2 / float(H.trace()),
                "This is 1/λmax: there a step lands on the valley floor. It may overshoot by as much again: 2/λmax.": 1
                / max(curvatures),
                "This is 2/λmin: the steepest direction diverges first, so the largest eigenvalue counts.": 2
                / min(curvatures),
            },
        )


@stable.check(points=5)
def descent_obeys_it(student, rng):
    "Descent converges 1 % below your limit and diverges 1 % above it."
    H, w0 = valley(rng, [0.5, 1.0, 2.0, 6.0 + integer(rng, 0, 9)]), torch.ones(4, dtype=F64)
    limit = student.max_stable_lr(H)
    checks.that(
        type(limit) in (float, int) or (type(limit) is torch.Tensor and limit.numel() == 1),
        "The limit must be one number, a float or a 0-d tensor.",
        got=limit,
    )

    def distance(lr, steps=2000):
        M = torch.eye(4, dtype=F64) - lr * H
        end = float((torch.linalg.matrix_power(M, steps) @ w0).norm())
        return end if math.isfinite(end) else math.inf

    below, above = distance(0.99 * float(limit)), distance(1.01 * float(limit))
    checks.that(
        below < 1e-6,
        f"With 99 % of your limit, lr = {0.99 * float(limit):.4g}, descent does not converge: after 2000 steps it is "
        f"{below:.3g} from the minimum. Your limit is too high.",
    )
    checks.that(
        above > 1e6,
        f"With 101 % of your limit, lr = {1.01 * float(limit):.4g}, descent still converges: after 2000 steps it is "
        f"{above:.3g} from the minimum. Your limit is too low.",
    )


@stable.check(points=2)
def flat_directions_and_float32(student, rng):
    "Directions without curvature set no limit; float32 data are fine."
    X = normal(rng, 12, 30, dtype=F32)  # fewer samples than weights: 18 eigenvalues are zero, some -1e-7 by rounding
    H = 2 / 12 * X.T @ X
    exact = 2 / float(torch.linalg.eigvalsh(H.double())[-1])
    checks.close(student.max_stable_lr(H), exact, name="limit", rtol=1e-4)


# 4 ---------------------------------------------------------------------------------------------- mini-batches

batching = lab.exercise("minibatches", points=15, minutes=8)


def epoch(student, n, batch_size, generator):
    """One epoch as a list of index tensors, after the first rungs of the ladder."""
    batches = student.minibatches(n, batch_size, generator)
    checks.that(
        type(batches) in (list, tuple),
        f"minibatches must yield index tensors (or return a list of them); it gave {type(batches).__name__}.",
        got=batches,
    )
    for k, batch in enumerate(batches):
        checks.tensor(batch, name=f"batch {k}", dtype=torch.int64)
        checks.that(batch.dim() == 1, f"batch {k} must have one dimension, the indices.", got=batch)
    return list(batches)


@batching.check(points=5)
def every_index_once(student, rng):
    "In one epoch every index comes exactly once."
    for n, batch_size in ((12, 4), (10, 3), (5, 1), (3, 8), (1, 1)):
        batches = epoch(student, n, batch_size, torch.Generator().manual_seed(integer(rng, 0, 2**31)))
        seen = torch.cat(batches).tolist() if batches else []
        missing, extra = sorted(set(range(n)) - set(seen)), sorted(i for i in set(seen) if seen.count(i) > 1)
        call = f"n = {n}, batch_size = {batch_size}"
        checks.that(
            not set(seen) - set(range(n)),
            f"{call}: an index lies outside 0 .. {n - 1}.",
            got=sorted(seen),
            expected=list(range(n)),
        )
        checks.that(
            not extra,
            f"{call}: index {extra[0] if extra else ''} comes more than once. Draw without replacement: randperm.",
            got=sorted(seen),
            expected=list(range(n)),
        )
        if n % batch_size and len(seen) == n - n % batch_size:
            hint = f"The short last batch is dropped: in this epoch {n % batch_size} of the samples would not be seen."
        else:
            hint = f"index {missing[0] if missing else ''} is missing."
        checks.that(not missing, f"{call}: {hint}", got=sorted(seen), expected=list(range(n)))


@batching.check(points=4)
def sizes_of_batches(student, rng):
    "Every batch has batch_size indices, the last one what is left."
    for n, batch_size, sizes in ((12, 4, [4, 4, 4]), (10, 3, [3, 3, 3, 1]), (3, 8, [3]), (4, 1, [1] * 4)):
        batches = epoch(student, n, batch_size, torch.Generator().manual_seed(integer(rng, 0, 2**31)))
        checks.equal(
            [len(batch) for batch in batches],
            sizes,
            name=f"batch sizes for n = {n}, batch_size = {batch_size}",
            mistakes={
                "You dropped the short last batch: keep it, its samples count too.": [batch_size] * (n // batch_size),
                "batch_size is the number of samples in a batch, not the number of batches.": [
                    len(part) for part in torch.arange(n).tensor_split(batch_size)
                ],
            },
        )


@batching.check(points=3, needs="every_index_once")
def new_order_each_epoch(student, rng):
    "The order is random, and another one in the next epoch."
    generator = torch.Generator().manual_seed(integer(rng, 0, 2**31))
    first, second = (torch.cat(epoch(student, 50, 8, generator)).tolist() for _ in range(2))
    checks.that(
        first != list(range(50)),
        "The indices come in their own order 0, 1, 2, ...: shuffle them with torch.randperm(n, generator=generator).",
        got=first,
    )
    checks.that(
        first != second,
        "Two epochs had the same order: draw a new permutation at each call, and do not seed the generator yourself.",
        got=second[:10],
    )


@batching.check(points=3, needs="every_index_once")
def the_generator_decides(student, rng):
    "The same generator gives the same batches, another seed gives others."
    seed = integer(rng, 0, 2**31)
    a, b, c = (
        torch.cat(epoch(student, 40, 7, torch.Generator().manual_seed(s))).tolist() for s in (seed, seed, seed + 1)
    )
    checks.that(
        a == b,
        "Two generators with the same seed gave different batches: pass it on, torch.randperm(n, generator=generator), "
        "so that a run can be repeated.",
    )
    checks.that(
        a != c, "Generators with different seeds gave the same batches: the order must come from the generator."
    )


# 5 ---------------------------------------------------------------------------------------------- SGD

descending = lab.exercise("sgd", points=15, minutes=8, uses=("minibatches",))


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

    def epochs(self, steps):
        """The indices in the order of each epoch, `steps` calls to an epoch."""
        batches = [batch for _, batch in self.asked]
        return [torch.cat(batches[i : i + steps]).tolist() for i in range(0, len(batches), steps)]


@descending.check(points=3)
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
            f"path has {len(path) if short else 0} rows; {epochs} epochs of {steps} batches make "
            f"1 + {epochs} x {steps} = {1 + epochs * steps}: one after each batch, and w0 first.",
            got=f"shape {tuple(path.shape)}",
            expected=f"shape {(1 + epochs * steps, 2)}",
        )
        checks.tensor(path, name="path", shape=(1 + epochs * steps, 2))
        checks.close(path[0], w0, name="path[0]", why="The path begins at w0.")


@descending.check(points=4, needs="one_row_per_step")
def each_step_follows_its_batch(student, rng):
    "Each step goes from the last point, against the gradient of its own batch."
    grad, w0, lr = Recorder(rng, 11, 3), normal(rng, 3), 0.2
    before = w0.clone()
    path = student.sgd(grad, 11, w0, lr, 4, 2, torch.Generator().manual_seed(integer(rng, 0, 2**31)))
    checks.equal(len(grad.asked), len(path) - 1, name="calls of grad", why="One gradient for each step.")
    asked = torch.stack([w for w, _ in grad.asked])
    checks.close(asked, path[:-1], name="the points at which you asked for a gradient")
    gradients = torch.stack([grad.full(w, batch) for w, batch in grad.asked])
    checks.close(
        path[1:],
        path[:-1] - lr * gradients,
        name="path[1:]",
        mistakes={
            "You climb: subtract the gradient, w - lr * grad(w, batch).": path[:-1] + lr * gradients,
            "You left out the learning rate.": path[:-1] - gradients,
        },
    )
    checks.unchanged(w0, before, name="w0")


@descending.check(points=3, needs="one_row_per_step")
def every_sample_each_epoch(student, rng):
    "Each epoch sees every sample once, in a new order."
    n, batch_size, steps = 14, 4, 4
    grad = Recorder(rng, n, 2)
    generator = torch.Generator().manual_seed(integer(rng, 0, 2**31))
    student.sgd(grad, n, normal(rng, 2), 0.05, batch_size, 4, generator)
    orders = grad.epochs(steps)
    for order in orders:
        checks.equal(sorted(order), list(range(n)), name="the indices of one epoch, sorted")
    checks.that(
        orders[0] != list(range(n)),
        "The samples come in their own order 0, 1, 2, ...: shuffle them, once per epoch.",
        got=orders[0],
    )
    checks.that(
        all(a != b for a, b in itertools.pairwise(orders)),
        "Every epoch has the same order: shuffle inside the loop over epochs, not once before it.",
        got=orders[1],
    )


@descending.check(points=2, needs="one_row_per_step")
def whole_batch_is_gradient_descent(student, rng):
    "With batch_size = n it is gradient descent on all the data."
    n, lr, epochs = 9, 0.15, 6
    grad, w0 = Recorder(rng, n, 3), normal(rng, 3)
    path = student.sgd(grad, n, w0.clone(), lr, n, epochs, torch.Generator().manual_seed(3))
    mean = grad.centres.mean(dim=0)
    exact = torch.stack([mean + (1 - 2 * lr) ** k * (w0 - mean) for k in range(epochs + 1)])
    checks.close(path, exact, name="path")


@descending.check(points=3, needs="one_row_per_step")
def batches_are_fair(student, rng):
    "Over many epochs every sample is equally often in the first batch (false alarm once in 1e9)."
    n, batch_size, epochs = 12, 6, 150
    grad = Recorder(rng, n, 1)
    generator = torch.Generator().manual_seed(integer(rng, 0, 2**31))
    student.sgd(grad, n, torch.zeros(1, dtype=F64), 0.01, batch_size, epochs, generator)
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


# 6 ---------------------------------------------------------------------------------------------- momentum and Adam

adam = lab.exercise("adam_step", points=15, minutes=12, functions=("momentum_step", "adam_step"))


# The oracles are torch.optim's functional forms: its classes bring in torch's compiler, a second at the first check.


def torch_sgd(w0, gradients, lr, momentum=0.0, nesterov=False):
    """The path of torch.optim.SGD over given gradients."""
    w, buffers, path = w0.clone(), [None], [w0]
    settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
    for g in gradients:
        torch_sgd_update([w], [g], buffers, weight_decay=0.0, dampening=0.0, maximize=False, foreach=False, **settings)
        path.append(w.clone())
    return torch.stack(path)


def torch_adam(w0, gradients, lr):
    """The path of torch.optim.Adam over given gradients, with its defaults."""
    w, m, v, t, path = w0.clone(), torch.zeros_like(w0), torch.zeros_like(w0), torch.tensor(0.0), [w0]
    settings = {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    for g in gradients:
        torch_adam_update([w], [g], [m], [v], [], [t], amsgrad=False, maximize=False, foreach=False, **settings)
        path.append(w.clone())
    return torch.stack(path)


def pair(value, name, second):
    checks.that(
        type(value) in (tuple, list) and len(value) == 2,
        f"{name} must return two things, (w, {second}).",
        got=value,
    )
    return value


def momentum_path(student, w, gradients, lr, beta):
    v, path = torch.zeros_like(w), [w]
    for g in gradients:
        w, v = pair(student.momentum_step(w, g, v, lr, beta), "momentum_step", "v")
        checks.tensor(w, name="w", shape=g.shape, dtype=g.dtype)
        checks.tensor(v, name="v", shape=g.shape, dtype=g.dtype)
        path.append(w)
    return torch.stack(path)


def fresh_state(w):
    return {"t": 0, "m": torch.zeros_like(w), "v": torch.zeros_like(w)}


def adam_path(student, w, gradients, lr):
    state, path = fresh_state(w), [w]
    for g in gradients:
        w, state = pair(student.adam_step(w, g, state, lr), "adam_step", "state")
        checks.tensor(w, name="w", shape=g.shape, dtype=g.dtype)
        checks.that(type(state) is dict, "The state must be a dict with t, m and v.", got=state)
        path.append(w)
    return torch.stack(path)


def late_velocity_path(w, gradients, lr, beta):
    """The mistake of stepping with the velocity before it is updated."""
    v, path = torch.zeros_like(w), [w]
    for g in gradients:
        w, v = w - lr * v, beta * v + g
        path.append(w)
    return torch.stack(path)


def momentum_mistakes(w0, gradients, lr, beta):
    def sgd(lr, **settings):
        return torch_sgd(w0, gradients, lr, **settings)

    return {
        "You step with the old velocity: first v = beta * v + g, then w = w - lr * v.": late_velocity_path(
            w0, gradients, lr, beta
        ),
        "You damp the gradient by (1 - beta): here v = beta * v + g, as in torch.optim.SGD.": sgd(
            lr * (1 - beta), momentum=beta
        ),
        "This is plain descent, without momentum: keep beta times the last velocity.": sgd(lr),
        "This is Nesterov's momentum: here the step is lr * v.": sgd(lr, momentum=beta, nesterov=True),
        "You climb: subtract the velocity, w - lr * v.": 2 * w0 - sgd(lr, momentum=beta),
    }


@adam.check(points=5)
def momentum_equals_torch(student, rng):
    "momentum_step equals torch.optim.SGD(momentum=beta), for 3 steps and for 100."
    for steps, d, dtype in ((3, 1, F64), (100, 5, F64), (10, 5, F32)):
        draw = small if d == 1 else normal
        w0, gradients, lr, beta = draw(rng, d, dtype=dtype), draw(rng, steps, d, dtype=dtype), 0.1, 0.9
        checks.close(
            momentum_path(student, w0, gradients, lr, beta),
            torch_sgd(w0, gradients, lr, momentum=beta),
            name="path",
            why="The path from w0 over the steps, with v = 0 at first.",
            mistakes=momentum_mistakes(w0, gradients, lr, beta),
        )


def adam_variant(w, gradients, lr, *, correct=True, inside=False, b1=0.9, b2=0.999, eps=1e-8):
    """Adam with a known mistake, to recognise it."""
    m, v, path = torch.zeros_like(w), torch.zeros_like(w), [w]
    for t, g in enumerate(gradients, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = (m / (1 - b1**t), v / (1 - b2**t)) if correct else (m, v)
        w = w - lr * m_hat / ((v_hat + eps).sqrt() if inside else v_hat.sqrt() + eps)
        path.append(w)
    return torch.stack(path)


def adam_mistakes(w, gradients, lr):
    return {
        "The bias correction is missing: divide m by 1 - 0.9**t and v by 1 - 0.999**t.": lambda: adam_variant(
            w, gradients, lr, correct=False
        ),
        "Epsilon belongs outside the root: sqrt(v_hat) + eps.": lambda: adam_variant(w, gradients, lr, inside=True),
        "The betas are swapped: 0.9 belongs to m, 0.999 to v.": lambda: adam_variant(
            w, gradients, lr, b1=0.999, b2=0.9
        ),
        "You climb: subtract the step.": lambda: 2 * w - adam_variant(w, gradients, lr),
    }


@adam.check(points=3)
def adam_first_step(student, rng):
    "Adam's first step moves every weight by lr, whatever the size of its gradient."
    w, lr = small(rng, 4), 0.01
    g = torch.tensor([1e3, -1.0, 1e-3, -20.0], dtype=F64) * integer(rng, 1, 9)
    stepped, state = pair(student.adam_step(w.clone(), g, fresh_state(w), lr), "adam_step", "state")
    checks.close(
        stepped,
        torch_adam(w, g[None], lr)[1],
        name="w",
        why="After one step m / (1 - 0.9) = g and v / (1 - 0.999) = g^2, so the step is lr * g / |g|.",
        mistakes={
            sentence: lambda value=value: value()[1] for sentence, value in adam_mistakes(w, g[None], lr).items()
        },
    )
    checks.that(type(state) is dict and {"t", "m", "v"} <= set(state), "The state must hold t, m and v.", got=state)
    checks.equal(int(state["t"]), 1, name="state['t'] after the first step")


@adam.check(points=5)
def adam_equals_torch(student, rng):
    "adam_step equals torch.optim.Adam for 100 steps, tiny gradients included."
    for steps, scale, dtype in ((3, 1.0, F64), (100, 1.0, F64), (20, 1e-7, F64), (20, 1.0, F32)):
        w0, gradients, lr = normal(rng, 6, dtype=dtype), scale * normal(rng, steps, 6, dtype=dtype), 0.05
        checks.close(
            adam_path(student, w0, gradients, lr),
            torch_adam(w0, gradients, lr),
            name="path",
            why="Betas 0.9 and 0.999, eps = 1e-8.",
            mistakes=adam_mistakes(w0, gradients, lr),
        )


@adam.check(points=2, needs=("momentum_equals_torch", "adam_equals_torch"))
def steps_change_nothing_else(student, rng):
    "Both steps return new values and leave their arguments alone."
    w, g, v = normal(rng, 3), normal(rng, 3), normal(rng, 3)
    state = {"t": 2, "m": normal(rng, 3), "v": normal(rng, 3) ** 2}
    before = [t.clone() for t in (w, g, v)], {k: x.clone() if k != "t" else x for k, x in state.items()}
    student.momentum_step(w, g, v, 0.1, 0.9)
    for value, old, name in zip((w, g, v), before[0], "wgv", strict=True):
        checks.unchanged(value, old, name=name)
    student.adam_step(w, g, state, 0.1)
    checks.unchanged(w, before[0][0], name="w")
    checks.unchanged(g, before[0][1], name="g")
    checks.unchanged(state, before[1], name="state")


# 7 ---------------------------------------------------------------------------------------------- parallel gradient

parallel = lab.exercise("parallel_gradient", points=10, minutes=6)


class ShardGradient:
    """The trusted mean gradient of a logistic loss on the rows it is given; remembers how many rows each call had."""

    def __init__(self, w):
        self.w, self.rows, self.__name__ = w, [], "grad"

    def __call__(self, w, X=None, y=None):
        checks.that(y is not None, "grad takes the weights and one shard's data: grad(w, X, y).")
        checks.unchanged(w, self.w, name="w")
        self.rows.append(len(y))
        return X.T @ (torch.sigmoid(X @ w) - y) / len(y)


def sharded(student, rng, sizes, dtype=F64):
    """The student's gradient over shards of these sizes, the full one, the shards' own, and the sizes asked for."""
    n, d, draw = sum(sizes), 2 if sum(sizes) < 9 else 3, small if sum(sizes) < 9 else normal
    w, X = draw(rng, d, dtype=dtype), draw(rng, n, d, dtype=dtype)
    y = torch.randint(0, 2, (n,), generator=rng).to(dtype)
    shards = list(zip(X.split(sizes), y.split(sizes), strict=True))
    grad = ShardGradient(w.clone())
    got = student.parallel_gradient(grad, w, shards)
    rows, exact = grad.rows, ShardGradient(w)
    return got, exact(w, X, y), torch.stack([exact(w, *shard) for shard in shards]), rows


def shard_mistakes(parts, sizes):
    weighted = (parts * torch.tensor(sizes, dtype=parts.dtype)[:, None]).sum(0)
    return {
        "You averaged the shards' gradients as if all had the same size: weight each by its rows, n_k / n.": (
            parts.mean(0)
        ),
        "You added the shards' gradients: each is a mean over its shard, so weight it by n_k / n.": parts.sum(0),
        "You weighted by n_k and did not divide by n, the number of all rows.": weighted,
    }


@parallel.check(points=2)
def equal_shards(student, rng):
    "Equal shards give the gradient of the whole batch."
    got, full, parts, _ = sharded(student, rng, [2, 2, 2])
    mistakes = shard_mistakes(parts, [2] * 3)
    del mistakes[next(iter(mistakes))]  # on equal shards the plain mean is right
    checks.close(got, full, name="gradient", mistakes=mistakes)


@parallel.check(points=4)
def unequal_shards(student, rng):
    "Unequal shards, tiny ones among them, give exactly the gradient of the whole batch."
    for sizes, dtype in (([3, 1], F64), ([17, 1, 5, 2], F64), ([1, 2, 1, 9, 4], F32)):
        got, full, parts, _ = sharded(student, rng, sizes, dtype)
        checks.close(got, full, name=f"gradient over shards of {sizes} rows", mistakes=shard_mistakes(parts, sizes))


@parallel.check(points=1, needs="equal_shards")
def one_shard(student, rng):
    "One shard is the ordinary gradient."
    got, full, _, _ = sharded(student, rng, [6])
    checks.close(got, full, name="gradient")


@parallel.check(points=3, needs="equal_shards")
def each_shard_on_its_own(student, rng):
    "The gradient is asked for once per shard: no processor ever sees another one's data."
    sizes = [4, 7, 2]
    *_, rows = sharded(student, rng, sizes)
    checks.that(
        sum(sizes) not in rows,
        "You put the shards together and took one gradient: then one processor needs all the data. "
        "Call grad on each shard and combine the results.",
        got=f"calls with {rows} rows",
        expected=f"calls with {sizes} rows",
    )
    checks.equal(sorted(rows), sorted(sizes), name="rows in the calls of grad")


# 8 ---------------------------------------------------------------------------------------------- schedule

schedule = lab.exercise("lr_schedule", points=10, minutes=7)


def lrs(student, warmup, total, peak, steps):
    values = [student.lr_schedule(step, warmup, total, peak) for step in steps]
    for step, value in zip(steps, values, strict=True):
        checks.close(value, 0.0, name=f"lr_schedule({step}, {warmup}, {total}, {peak})", atol=1e300)  # one number
    return [float(value) for value in values]


def tensor(values):
    return torch.tensor(values, dtype=F64)


@schedule.check(points=3)
def warmup_is_linear(student, rng):
    "From 0 the learning rate climbs in equal parts, to reach its peak at step = warmup."
    warmup = integer(rng, 4, 9)
    total, peak, steps = 3 * warmup, 0.1 * integer(rng, 1, 9), range(warmup)
    checks.close(
        tensor(lrs(student, warmup, total, peak, steps)),
        tensor([peak * step / warmup for step in steps]),
        name="lr",
        why=f"warmup = {warmup}, total = {total}, peak = {peak:.1f}, step = 0 .. {warmup - 1}.",
        mistakes={
            "You are one step ahead: at step 0 the learning rate is 0, at step = warmup it is the peak.": tensor(
                [peak * (step + 1) / warmup for step in steps]
            ),
            "There is no warm-up: below step = warmup the learning rate is peak * step / warmup.": tensor(
                [peak for _ in steps]
            ),
        },
    )


@schedule.check(points=3)
def cosine_after_it(student, rng):
    "From step = warmup to step = total it falls along half a cosine wave from the peak to 0."
    warmup, length, peak = integer(rng, 2, 6), 4 * integer(rng, 3, 6), 0.1 * integer(rng, 1, 9)
    total, steps = warmup + length, range(warmup, warmup + length + 1)

    def fall(f, steps=steps):
        return tensor([f(step) for step in steps])

    checks.close(
        tensor(lrs(student, warmup, total, peak, steps)),
        fall(lambda step: peak * math.cos(math.pi / 2 * (step - warmup) / length) ** 2),  # = (1 + cos 2x) / 2
        name="lr",
        why=f"warmup = {warmup}, total = {total}, peak = {peak:.1f}, step = {warmup} .. {total}.",
        mistakes={
            "You measure from step 0: the cosine begins at step = warmup and lasts total - warmup steps.": fall(
                lambda step: peak / 2 * (1 + math.cos(math.pi * step / total))
            ),
            "The cosine lasts total steps here: it should last total - warmup, so that it ends at 0.": fall(
                lambda step: peak / 2 * (1 + math.cos(math.pi * (step - warmup) / total))
            ),
            "This falls in a straight line: take peak / 2 * (1 + cos(pi * progress)).": fall(
                lambda step: peak * (1 - (step - warmup) / length)
            ),
            "This cosine goes below zero: lift it, peak / 2 * (1 + cos(pi * progress)).": fall(
                lambda step: peak * math.cos(math.pi * (step - warmup) / length)
            ),
            "This is twice the schedule: 1 + cos goes from 2 to 0, so multiply by peak / 2.": fall(
                lambda step: peak * (1 + math.cos(math.pi * (step - warmup) / length))
            ),
        },
    )


@schedule.check(points=2, needs=("warmup_is_linear", "cosine_after_it"))
def ends_and_stays_at_zero(student, rng):
    "At step = total the learning rate is 0, and it stays there."
    warmup, total = integer(rng, 1, 5), integer(rng, 20, 40)
    got = lrs(student, warmup, total, 0.3, (total, total + 1, 2 * total))
    checks.close(tensor(got), tensor([0.0] * 3), name="lr at step total, total + 1, 2 * total", atol=1e-12)


@schedule.check(points=1)
def no_warmup(student, rng):
    "With warmup = 0 the first step has the peak."
    total = integer(rng, 5, 30)
    got = lrs(student, 0, total, 0.4, (0, total))
    checks.close(tensor(got), tensor([0.4, 0.0]), name="lr at step 0 and total", atol=1e-12)


@schedule.check(points=1, needs=("warmup_is_linear", "cosine_after_it"))
def up_then_down(student, rng):
    "It rises until step = warmup and falls after it, with no jump between."
    warmup, total = integer(rng, 10, 20), integer(rng, 80, 120)
    got = tensor(lrs(student, warmup, total, 1.0, range(total + 1)))
    rises, falls = got[: warmup + 1].diff(), got[warmup:].diff()
    checks.that(bool((rises > 0).all()), "The learning rate does not rise at every step of the warm-up.")
    checks.that(bool((falls < 0).all()), "The learning rate does not fall at every step after the warm-up.")
    checks.that(float(got.diff().abs().max()) <= 1.01 / warmup, "The learning rate jumps somewhere.")
