"""Which of eight programs are the schedule of exercise 8? Oracle: the formula, by half angles."""

import math

from autograder.checks.impostors import LineUp, Suspect, number, whole
from autograder.exercises.unmasking import examines


def truth(step, warmup, total, peak):
    if step < warmup:
        return peak * step / warmup
    return peak * math.cos(math.pi / 2 * min(1.0, (step - warmup) / (total - warmup))) ** 2


def cosine(progress, peak):
    return peak / 2 * (1 + math.cos(math.pi * progress))


def three_phases(step, warmup, total, peak):
    if step < warmup:
        return peak * step / warmup
    return 0.0 if step >= total else cosine((step - warmup) / (total - warmup), peak)


def smaller_of_two(step, warmup, total, peak):
    """Warm-up and wave are two curves; before they meet, the warm-up is the lower one."""
    up = peak * step / warmup if warmup else peak
    down = cosine(min(max(step - warmup, 0) / (total - warmup), 1), peak)
    return min(up, down)


def from_the_end(step, warmup, total, peak):
    left = max(total - step, 0)
    return peak * step / warmup if step < warmup else peak * math.sin(math.pi / 2 * left / (total - warmup)) ** 2


def product(step, warmup, total, peak):
    up = 1.0 if step >= warmup else step / warmup
    return up * cosine(min(max(step - warmup, 0) / (total - warmup), 1), peak)


def starts_at_one(step, warmup, total, peak):
    return peak * (step + 1) / warmup if step < warmup else truth(step, warmup, total, peak)


def wave_from_step_0(step, warmup, total, peak):
    return peak * step / warmup if step < warmup else cosine(min(step / total, 1), peak)


def up_again(step, warmup, total, peak):
    return peak * step / warmup if step < warmup else cosine((step - warmup) / (total - warmup), peak)


def divides_by_warmup(step, warmup, total, peak):
    return peak * step / warmup if step <= warmup else truth(step, warmup, total, peak)


def outside(step, warmup, total, peak):
    return "" if warmup < total else f"warmup is {warmup} and total {total}, and warmup is less than total"


line_up = LineUp(
    "unmask_lr_schedule",
    truth=truth,
    suspects=(
        Suspect("A", three_phases),
        Suspect("B", up_again, "continues the wave after the last step", "a step after the last one"),
        Suspect("C", starts_at_one, "begins its warm-up one step ahead", "a step of the warm-up"),
        Suspect("D", smaller_of_two),
        Suspect("E", product),
        Suspect(
            "F", divides_by_warmup, "divides by warmup even if it is 0", "the first step of a schedule without warm-up"
        ),
        Suspect(
            "G",
            wave_from_step_0,
            "starts the wave at step 0",
            "a step between warm-up and end, not just after a warm-up of 0",
        ),
        Suspect("H", from_the_end),
    ),
    fields={"step": whole(0, 10_000), "warmup": whole(0, 1000), "total": whole(1, 1000), "peak": number(0.001, 10)},
    outside=outside,
)
exercise = examines(line_up)
