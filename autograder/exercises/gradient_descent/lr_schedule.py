"""A learning rate that climbs, then falls along a cosine. Oracle: the formula, with cos² for 1 + cos."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F64
from autograder.exercises.gradient_descent.drawing import integer
from autograder.exercises.ready_made import BELLS, OPTIMIZERS

exercise = Exercise(
    "lr_schedule",
    points=10,
    minutes=7,
    forbid=(*OPTIMIZERS, *BELLS),
    instead="Write the line and the cosine yourself; the schedules of torch.optim are only for comparison.",
)


WHOLE = "`//` drops the fraction; `/` keeps it."


def lrs(student, warmup, total, peak, steps):
    values = [student.lr_schedule(step, warmup, total, peak) for step in steps]
    for step, value in zip(steps, values, strict=True):
        checks.close(value, 0.0, name=f"lr_schedule({step}, {warmup}, {total}, {peak})", atol=1e300)  # one number
    return [float(value) for value in values]


def tensor(values):
    return torch.tensor(values, dtype=F64)


@exercise.check(points=3)
def warmup_is_linear(student, rng):
    "The learning rate rises from 0 in equal increments and reaches its peak at step = warmup."
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
            f"It is 0 until the warm-up is over. {WHOLE}": tensor([0.0 for _ in steps]),
            "There is no warm-up: below step = warmup the learning rate is peak * step / warmup.": tensor(
                [peak for _ in steps]
            ),
        },
    )


@exercise.check(points=3)
def cosine_after_it(student, rng):
    "From step = warmup to step = total it falls along half a cosine wave from the peak to 0."
    warmup, length, peak = integer(rng, 2, 6), 4 * integer(rng, 3, 6), 0.1 * integer(rng, 1, 9)
    total, steps = warmup + length, range(warmup, warmup + length)

    def fall(f, steps=steps):
        return tensor([f(step) for step in steps])

    checks.close(
        tensor(lrs(student, warmup, total, peak, steps)),
        fall(lambda step: peak * math.cos(math.pi / 2 * (step - warmup) / length) ** 2),  # = (1 + cos 2x) / 2
        name="lr",
        why=f"warmup = {warmup}, total = {total}, peak = {peak:.1f}, step = {warmup} .. {total - 1}.",
        mistakes={
            "You measure from step 0: the cosine begins at step = warmup and lasts total - warmup steps.": fall(
                lambda step: peak / 2 * (1 + math.cos(math.pi * step / total))
            ),
            f"It stays at the peak until the end. {WHOLE}": fall(lambda step: peak if step < total else 0.0),
            "The cosine lasts total steps here: it should last total - warmup, so that it ends at 0.": fall(
                lambda step: peak / 2 * (1 + math.cos(math.pi * (step - warmup) / total))
            ),
            "This falls in a straight line: take peak / 2 * (1 + cos(pi * progress)).": fall(
                lambda step: peak * (1 - (step - warmup) / length)
            ),
            "This is a quarter of a wave, from cos 0 to cos pi / 2: take peak / 2 * (1 + cos(pi * progress)).": fall(
                lambda step: peak * math.cos(math.pi / 2 * (step - warmup) / length)
            ),
            "This cosine goes below zero: lift it, peak / 2 * (1 + cos(pi * progress)).": fall(
                lambda step: peak * math.cos(math.pi * (step - warmup) / length)
            ),
            "This is twice the schedule: 1 + cos goes from 2 to 0, so multiply by peak / 2.": fall(
                lambda step: peak * (1 + math.cos(math.pi * (step - warmup) / length))
            ),
        },
    )


@exercise.check(points=2, needs=("warmup_is_linear", "cosine_after_it"))
def ends_and_stays_at_zero(student, rng):
    "At step = total the learning rate is 0, and it stays there."
    warmup, total, peak = integer(rng, 1, 5), integer(rng, 20, 40), 0.1 * integer(rng, 1, 9)
    got = lrs(student, warmup, total, peak, (total, total + 1, 2 * total))
    still = max(map(abs, got)) < 1e-12 or abs(got[0]) >= 1e-12
    checks.that(still, "It rises again after step = total: there it stays at 0.", got=got)
    checks.close(tensor(got), tensor([0.0] * 3), name="lr at step total, total + 1, 2 * total", atol=1e-12)


@exercise.check(points=1)
def no_warmup(student, rng):
    "With warmup = 0 the first step has the peak."
    total, peak = integer(rng, 5, 30), (2 * integer(rng, 1, 9) + 1) / 16
    got = lrs(student, 0, total, peak, (0, total))
    checks.close(tensor(got), tensor([peak, 0.0]), name="lr at step 0 and total", atol=1e-12)


@exercise.check(points=1, needs=("warmup_is_linear", "cosine_after_it"))
def up_then_down(student, rng):
    "It rises until step = warmup and falls after it, without a jump."
    warmup, total = integer(rng, 10, 20), integer(rng, 80, 120)
    got = tensor(lrs(student, warmup, total, 1.0, range(total + 1)))
    rises, falls = got[: warmup + 1].diff(), got[warmup:].diff()
    checks.that(bool((rises > 0).all()), "The learning rate does not rise at every step of the warm-up.")
    checks.that(bool((falls < 0).all()), "The learning rate does not fall at every step after the warm-up.")
    checks.that(float(got.diff().abs().max()) <= 1.01 / warmup, "The learning rate jumps somewhere.")
