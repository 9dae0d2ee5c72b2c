"""LARS, LAMB and the learning rate of large batches. Oracle: the papers' rules in float64, tensor by tensor."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import OPTIMIZERS

exercise = Exercise(
    "large_batch",
    points=20,
    minutes=20,
    functions=("lars_step", "lamb_step", "lr_at"),
    forbid=OPTIMIZERS,
    instead="Write the rule yourself, with norms and sums.",
)

SHAPES = ((4, 3), (4,), (2, 3, 2), (3,), (2,), (2, 2))  # weights of layers, and biases, in no fixed order
BETA_1, BETA_2, EPS = 0.9, 0.999, 1e-6


def tensors(rng, scale: float = 1.0) -> list[Tensor]:
    """Of sizes as different as those of layers are, float64."""
    return [scale * 3.0**i * torch.randn(shape, generator=rng, dtype=torch.float64) for i, shape in enumerate(SHAPES)]


def norm(xs: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(value) ** 2 for x in xs for value in x.flatten()))


def lars(
    w: list[Tensor], g: list[Tensor], v: list[Tensor], lr: float, momentum=0.9, decay=1e-4, trust=1e-3,
    together=False, biases=False, decayed_biases=False, decayed=True, in_ratio=True, inverted=False, kept_lr=True,
    ratio=True, where_zero=1.0, plain_below="", trusted=True, rates=1,
):  # fmt: skip
    """You, Gitman and Ginsburg 2017, and what known mistakes make of it: new weights and velocities."""
    weights, velocities = [], []
    for x, grad, velocity in zip(w, g, v, strict=True):
        plain = x.dim() == 1 and not biases
        size, slope = (norm(w), norm(g)) if together else (norm([x]), norm([grad]))
        below = slope + decay * size * in_ratio
        below = {"": below, "norm of the sum": norm([grad + decay * x]), "undecayed": slope + size}[plain_below]
        rate = 1.0 if plain or not ratio else where_zero
        if size and below and ratio and not plain:
            rate = (trust if trusted else 1.0) * (below / size if inverted else size / below)
        push = grad if (x.dim() == 1 and not decayed_biases) or not decayed else grad + decay * x
        velocities.append(momentum * velocity + rate * push * (lr**rates if kept_lr else 1.0))
        weights.append(x - velocities[-1] * (1.0 if kept_lr else lr))
    return weights, velocities


def lamb(
    w: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], t: int, lr: float, decay=0.01,
    together=False, biases=False, corrected=True, decayed=True, of_gradient=False, ratio=True, eps_inside=False,
    decayed_biases=False, late_decay=False, old_momenta=False, squared=True,
):  # fmt: skip
    """You and others 2020, with and without known mistakes: new weights, momenta and variances."""
    momenta = [BETA_1 * a + (1 - BETA_1) * b for a, b in zip(m, g, strict=True)]
    variances = [BETA_2 * a + (1 - BETA_2) * (b * b if squared else b.abs()) for a, b in zip(v, g, strict=True)]
    first, second = (1 - BETA_1**t, 1 - BETA_2**t) if corrected else (1.0, 1.0)
    pushes = [decay * x * (decayed and (x.dim() > 1 or decayed_biases)) for x in w]
    updates = [
        a / first / ((b / second + EPS).sqrt() if eps_inside else (b / second).sqrt() + EPS)
        + (0.0 if late_decay else push)
        for push, a, b in zip(pushes, m if old_momenta else momenta, v if old_momenta else variances, strict=True)
    ]
    weights = []
    for x, grad, update, push in zip(w, g, updates, pushes, strict=True):
        sizes = (norm(w), norm(updates)) if together else (norm([x]), norm([grad if of_gradient else update]))
        plain = (x.dim() == 1 and not biases) or not all(sizes) or not ratio
        weights.append(x - lr * (1.0 if plain else sizes[0] / sizes[1]) * update - (lr * push if late_decay else 0.0))
    return weights, momenta, variances


def lists_of(got, names: tuple[str, ...], call: str) -> None:
    checks.that(
        type(got) in (tuple, list)
        and len(got) == len(names)
        and all(type(part) in (list, tuple) and len(part) == len(SHAPES) for part in got),
        f"{call} is {show.show(got, 80)}, expected {len(names)} lists of {len(SHAPES)} tensors: {', '.join(names)}.",
    )


def same_lists(got, right, variants: dict, names: tuple[str, ...], call: str) -> None:
    """Every tensor; `variants` is what known mistakes give instead of `right`."""
    lists_of(got, names, call)
    for part in range(len(names)):
        for i, expected in enumerate(right[part]):
            what = "weights (a bias)" if SHAPES[i][1:] == () else "weights"
            mistakes = {sentence: values[part][i] for sentence, values in variants.items()}
            mistakes = {s: x for s, x in mistakes.items() if not torch.allclose(x, expected, rtol=1e-8, atol=1e-12)}
            name = f"{call}: {names[part]}[{i}], {what} of shape {SHAPES[i]}"
            checks.close(got[part][i], expected, name=name, mistakes=mistakes, rtol=1e-8, atol=1e-12)


def left_alone(function, given: dict[str, list[Tensor]], *rest, **options):
    """What the function returns; CheckFailure where it has changed a tensor that it was given."""
    before = {name: [x.clone() for x in xs] for name, xs in given.items()}
    got = function(*given.values(), *rest, **options)
    for name, xs in given.items():
        checks.unchanged(xs, before[name], name=name)
    return got


def in_float32(function, given: dict[str, list[Tensor]], rule, *rest) -> None:
    """The same step in float32, which the lab's own networks have."""
    small = {name: [x.float() for x in xs] for name, xs in given.items()}
    right = [[x.float() for x in part] for part in rule(*([x.double() for x in xs] for xs in small.values()), *rest)]
    got, call = left_alone(function, small, *rest), f"{rule.__name__}_step of float32 tensors"
    names = tuple(name for name in small if name != "gradients")
    lists_of(got, names, call)
    for name, part, expected in zip(names, got, right, strict=True):
        for i, (x, value) in enumerate(zip(part, expected, strict=True)):
            checks.close(x, value, name=f"{call}: {name}[{i}], of shape {SHAPES[i]}")


def lars_is(student, w, g, v, lr: float, **options) -> None:
    got = left_alone(student.lars_step, {"weights": w, "gradients": g, "velocities": v}, lr, **options)
    shown = "".join(f", {name}={value}" for name, value in options.items())
    variants = {
        "If either norm is 0, the ratio is 1: otherwise such weights never move.": lars(
            w, g, v, lr, **options, where_zero=0.0
        ),
        "The ratio is each tensor's own: this one has the norms of all tensors together.": lars(
            w, g, v, lr, **options, together=True
        ),
        "Biases and the like, of one dimension, have no ratio: they take the step of SGD.": lars(
            w, g, v, lr, **options, biases=True, decayed_biases=True
        ),
        "A bias has no ratio.": lars(w, g, v, lr, **options, biases=True),
        "A bias is not decayed.": lars(w, g, v, lr, **options, decayed_biases=True),
        "Weight decay is missing in the step: g + decay w.": lars(w, g, v, lr, **options, decayed=False),
        "Weight decay is missing in the ratio: |g| + decay |w|.": lars(w, g, v, lr, **options, in_ratio=False),
        "The ratio is inverted: large weights may take large steps.": lars(w, g, v, lr, **options, inverted=True),
        "Put the learning rate into the velocity: otherwise a new rate changes old steps, too.": lars(
            w, g, v, lr, **options, kept_lr=False
        ),
        "The denominator is |g| + decay |w|, a sum of two norms, not the norm of g + decay w.": lars(
            w, g, v, lr, **options, plain_below="norm of the sum"
        ),
        "Multiply |w| by `decay` in the denominator: |g| + decay |w|.": lars(
            w, g, v, lr, **options, plain_below="undecayed"
        ),
        "`trust` is missing in the ratio.": lars(w, g, v, lr, **options, trusted=False),
        "The learning rate is applied twice: apply it once, in the velocity.": lars(w, g, v, lr, **options, rates=2),
        "There is no ratio here: this is SGD with momentum.": lars(w, g, v, lr, **options, ratio=False),
        "The sign: the weights go against the velocity.": (
            [2 * a - b for a, b in zip(w, lars(w, g, v, lr, **options)[0], strict=True)],
            lars(w, g, v, lr, **options)[1],
        ),
    }
    call = f"lars_step(w, g, v, {lr:g}{shown})"
    same_lists(got, lars(w, g, v, lr, **options), variants, ("weights", "velocities"), call)


@exercise.check(points=5)
def lars_by_layers(student, rng):
    "lars_step: each layer's step is as long as its weights allow; biases take the step of SGD; in float32, too."
    for lr, options in ((0.5, {}), (3.0, {"momentum": 0.5, "decay": 0.1, "trust": 0.02})):
        w, g, v = tensors(rng, 0.02 * lr), tensors(rng, 0.1), tensors(rng, 0.01)
        lars_is(student, w, g, v, lr, **options)
    given = {"weights": tensors(rng), "gradients": tensors(rng, 0.1), "velocities": tensors(rng, 0.01)}
    in_float32(student.lars_step, given, lars, 0.5)


@exercise.check(points=3, needs="lars_by_layers")
def scale_of_the_gradient(student, rng):
    "lars_step: a gradient a thousand times as large makes the same step of a layer; zeros make no NaN."
    w, g, v = tensors(rng), tensors(rng, 0.1), [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    for factor in (1, 1000):
        lars_is(student, w, [factor * x for x in g], v, 1.0, decay=0.0)
    nothing = [torch.zeros_like(x) for x in w]
    for weights, gradients, options in ((nothing, g, {}), (w, nothing, {"decay": 0.0}), (nothing, nothing, {})):
        got = student.lars_step(weights, gradients, v, 1.0, **options)
        lists_of(got, ("weights", "velocities"), "lars_step(w, g, v, 1)")
        for i, x in enumerate(got[0]):
            checks.that(
                type(x) is torch.Tensor and bool(x.isfinite().all()),
                f"weights[{i}] are {show.show(x, 60)} where {'w' if weights is nothing else 'g'} is 0 everywhere: "
                "if either norm is 0, the ratio is 1.",
            )
        lars_is(student, weights, gradients, v, 1.0, **options)
        lars_is(student, weights, gradients, v, 1.0, **options)


@exercise.check(points=5)
def lamb_by_layers(student, rng):
    "lamb_step: Adam's step with weight decay, each layer's made as long as its weights; in float32, too."
    for t, lr, options in ((1, 0.1, {}), (5, 0.02, {"decay": 0.3})):
        w, g, m = tensors(rng, 0.02 if t > 1 else 1.0), tensors(rng, 0.1), tensors(rng, 0.05)
        v = [x * x for x in tensors(rng, 0.05)]
        given = {"weights": w, "gradients": g, "momenta": m, "variances": v}
        got = left_alone(student.lamb_step, given, t, lr, **options)
        variants = {
            "The ratio is each tensor's own: this one has the norms of all tensors together.": lamb(
                w, g, m, v, t, lr, **options, together=True
            ),
            "A bias has no ratio: it takes Adam's step.": lamb(w, g, m, v, t, lr, **options, biases=True),
            "Adam's corrections of the first steps are missing: m / (1 - 0.9^t), v / (1 - 0.999^t).": lamb(
                w, g, m, v, t, lr, **options, corrected=False
            ),
            "Weight decay is missing: it is part of the update whose norm is taken.": lamb(
                w, g, m, v, t, lr, **options, decayed=False
            ),
            "The ratio is |w| by the norm of the update, not of the gradient.": lamb(
                w, g, m, v, t, lr, **options, of_gradient=True
            ),
            "Add epsilon to the root, not under it.": lamb(w, g, m, v, t, lr, **options, eps_inside=True),
            "A bias is not decayed.": lamb(w, g, m, v, t, lr, **options, decayed_biases=True),
            "Weight decay is added before the norm is taken, and scaled with the rest.": lamb(
                w, g, m, v, t, lr, **options, late_decay=True
            ),
            "The step uses the old momenta and variances: update them first.": lamb(
                w, g, m, v, t, lr, **options, old_momenta=True
            ),
            "The variance is a mean of squares: 0.999 v + 0.001 g * g.": lamb(
                w, g, m, v, t, lr, **options, squared=False
            ),
            "The corrections are those of step t + 1: t counts from 1, the first step has t = 1.": lamb(
                w, g, m, v, t + 1, lr, **options
            ),
            "There is no ratio here: this is Adam.": lamb(w, g, m, v, t, lr, **options, ratio=False),
        }
        call = f"lamb_step(w, g, m, v, {t}, {lr}{', decay=0.3' if options else ''})"
        names = ("weights", "momenta", "variances")
        same_lists(got, lamb(w, g, m, v, t, lr, **options), variants, names, call)
    in_float32(student.lamb_step, given, lamb, 5, 0.02)
    zeros_in_lamb(student, rng)


def zeros_in_lamb(student, rng) -> None:
    """If the norm of the weights or of the update is 0, the ratio is 1."""
    nothing = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    names = ("weights", "momenta", "variances")
    for w, g, decay, what in ((nothing, tensors(rng), 0.01, "w"), (tensors(rng), nothing, 0.0, "the update")):
        call = f"lamb_step(w, g, m, v, 1, 0.1, decay={decay:g})"
        got = student.lamb_step(w, g, nothing, nothing, 1, 0.1, decay=decay)
        lists_of(got, names, call)
        for i, x in enumerate(got[0]):
            checks.that(
                type(x) is torch.Tensor and bool(x.isfinite().all()) and bool(x.any()),
                f"weights[{i}] are {show.show(x, 60)} after a step in which {what} is 0 everywhere: if a norm is 0, "
                "the ratio is 1; otherwise such weights never move.",
            )
        same_lists(got, lamb(w, g, nothing, nothing, 1, 0.1, decay), {}, names, call)


def rate(step: int, lr: float, k: float, warmup: int, drops: Sequence[int] = ()) -> float:
    grown = lr + (k * lr - lr) * min(step / warmup, 1.0) if warmup else k * lr
    return grown * 0.1 ** sum(step >= drop for drop in drops)


@exercise.check(points=7)
def the_learning_rate(student, rng):
    "lr_at: from lr to k lr in equal steps, then k lr, and a tenth of it from each drop on, wherever it is."
    steps = whole_number(rng, 2, 9)
    for lr, k, warmup, drops in (
        (0.1, 32, 5, (8, 12)),
        (0.4, 8, 10, ()),
        (0.25, 1, 4, (6,)),
        (0.1, 16, 0, (3,)),
        (0.1, 8, 6, (2, 9)),
        (whole_number(rng, 1, 9) / 20, whole_number(rng, 3, 40), steps, (whole_number(rng, steps + 2, 18),)),
    ):
        for step in (0, 1, 2, 3, warmup, warmup + 1, *drops, 20):
            given = list(drops)
            got = student.lr_at(step, lr, k, warmup, given)
            call = f"lr_at({step}, {lr}, {k}, {warmup}{f', drops={list(drops)}' if drops else ''})"
            checks.that(
                given == list(drops), f"{call} changes its argument drops, which the next step needs.", got=given
            )
            checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number.")
            expected = rate(step, lr, k, warmup, drops)
            later = drops if step >= warmup else ()
            fallen = 0.1 ** sum(step >= drop for drop in drops)
            mistakes = {
                "A drop counts from its step on, also during the warm-up.": rate(step, lr, k, warmup, later),
                "The warm-up comes once, not again after each drop.": rate(
                    step - max([0, *(d for d in drops if d <= step)]), lr, k, warmup
                )
                * fallen,
                "The rate grows as the batch does: k lr, not the root of k times lr.": rate(
                    step, lr, math.sqrt(k), warmup, drops
                ),
                "That is the rate of the small batch: it grows to k lr.": lr * fallen,
                "There is a warm-up: at step 0 the rate is lr.": k * lr * fallen,
                "The warm-up begins at lr, not at 0.": k * lr * fallen * min(1.0, step / warmup if warmup else 1.0),
                "The warm-up ends: from then on the rate is k lr.": (lr + (k - 1) * lr * step / (warmup or 1)) * fallen,
                "The drops are missing: each divides the rate by 10.": rate(step, lr, k, warmup),
                "Each drop counts: after two drops it is a hundredth.": rate(step, lr, k, warmup, drops[:1]),
                "A drop begins with its step.": rate(step, lr, k, warmup, [d + 1 for d in drops]),
                "The last step of the warm-up is step warmup - 1 here: at step `warmup` the rate is k lr.": rate(
                    step + 1, lr, k, warmup
                )
                * fallen,
            }
            mistakes = {s: v for s, v in mistakes.items() if abs(v - expected) > 1e-9}
            checks.close(got, expected, name=call, mistakes=mistakes, rtol=1e-9, atol=0.0)
