"""A schedule of the student's own. Oracle: dependencies, what a stage holds, and an event simulation beside 1F1B's."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.model_parallel.pipelines import Orders, can_be_followed, held, orders_of, play
from autograder.exercises.model_parallel.published import one_f_one_b, zb_h1
from autograder.exercises.ready_made import PIPELINES

exercise = Exercise(
    "design",
    points=15,
    minutes=20,
    extra=True,
    uses=("schedules", "zero_bubble"),
    forbid=PIPELINES,
    instead="Write each stage's list of ops yourself.",
)

SIZES = ((1, 1), (1, 3), (2, 1), (2, 5), (3, 4), (4, 2), (5, 7), (4, 9))  # p, m: also fewer microbatches than stages
Seconds = tuple[float, float, float]


def whole(rng, low: int, high: int) -> int:
    """A random number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def seconds_of(rng) -> Seconds:
    """Random seconds of F, B and W from 1 to 2, multiples of 1/4 so that sums are exact."""
    f, b, w = (1 + torch.randint(0, 5, (3,), generator=rng) / 4).tolist()
    return f, b, w


def designed(student, p: int, m: int, seconds: Seconds, cap: int) -> tuple[Orders, str]:
    """The student's orders, which all stages can follow together, and how they are called."""
    call = f"design({p}, {m}, {', '.join(f'{each:g}' for each in seconds)}, cap={cap})"
    orders = orders_of(student.design(p, m, *seconds, cap), p, m, 1, "FBW", call)
    can_be_followed(orders, call)
    return orders, call


def keeps_the_cap(orders: Orders, call: str, cap: int) -> None:
    """No stage holds more than `cap` microbatches from their F to their W."""
    for i, order in enumerate(orders):
        most = held(order)
        checks.that(
            most <= cap,
            f"{call}: stage {i} holds {most} microbatches at a time, and the cap is {cap}. A microbatch is held from "
            "its F until its W: do a W before the F that would be too many.",
            got=f"{most} microbatches between F and W",
            expected=f"{cap} at most",
        )


def beats(student, p: int, m: int, seconds: Seconds, cap: int, other: Orders, name: str) -> None:
    """The student's schedule keeps to the cap and has a smaller bubble than `other`."""
    orders, call = designed(student, p, m, seconds, cap)
    keeps_the_cap(orders, call, cap)
    work = m * sum(seconds)
    ours, theirs = (1 - work / play(each, *seconds).seconds for each in (orders, other))
    checks.that(
        ours < theirs - 1e-9,
        f"{call} has a bubble of {ours:.4f}, and {name} has {theirs:.4f}: yours must be smaller.",
        got=f"{ours:.4f}",
        expected=f"less than {theirs:.4f}",
        why="F, B and W take the seconds that design was given; messages are free.",
    )


@exercise.check(points=3)
def a_schedule(student, rng):
    "F, B and W of each microbatch once on each stage, in an order that all stages can follow together."
    for p, m in SIZES:
        for cap in (p, whole(rng, 1, 2 * p)):
            designed(student, p, m, seconds_of(rng), cap)


@exercise.check(points=3, needs="a_schedule")
def within_the_cap(student, rng):
    "No stage ever holds more than cap microbatches from their F to their W, and more than one where it may."
    for p, m in ((2, 5), (3, 8), (4, 9), (6, 14)):
        for cap in range(1, 2 * p + 2):
            orders, call = designed(student, p, m, seconds_of(rng), cap)
            keeps_the_cap(orders, call, cap)
            most = max(map(held, orders))
            checks.that(
                most > 1 or cap == 1,
                f"{call}: no stage ever holds more than one microbatch, and the cap is {cap}. Let a stage begin the "
                "next microbatch while others work on this one.",
            )


@exercise.check(points=4, needs="a_schedule")
def beats_1f1b(student, rng):
    "With cap = p the bubble is smaller than 1F1B's, whatever F, B and W take; with cap = p - 1 that is kept instead."
    for p in (2, 3, 4, 6, whole(rng, 2, 7)):
        m, seconds = whole(rng, p, 3 * p), seconds_of(rng)
        beats(student, p, m, seconds, p, one_f_one_b(p, m), "1F1B")
        keeps_the_cap(*designed(student, p, m, seconds, p - 1), p - 1)


@exercise.check(points=3, needs="a_schedule")
def uses_more_memory(student, rng):
    "With cap = 2p - 1, m >= 2p - 1 and W no longer than F and B, the bubble is smaller than ZB-H1's."
    for p in (2, 3, 5, whole(rng, 2, 6)):
        m = whole(rng, 2 * p - 1, 4 * p)
        f, b, w = seconds_of(rng)
        beats(student, p, m, (f, b, min(f, b, w)), 2 * p - 1, zb_h1(p, m), "ZB-H1")


@exercise.check(points=2, needs="a_schedule")
def uses_little_memory(student, rng):
    "With cap < p the bubble is smaller than that of 1F1B whose stages begin with at most cap forward passes."
    for p in (3, 4, 6, whole(rng, 3, 7)):
        m, cap = whole(rng, p, 3 * p), whole(rng, 2, p - 1)
        beats(student, p, m, seconds_of(rng), cap, short_of_memory(p, m, cap), "1F1B with that cap")
    for cap in (2, 3):  # a short W gains little: one forward pass less before the first B costs more
        beats(student, 4, 5, (1.0, 2.0, 0.5), cap, short_of_memory(4, 5, cap), "1F1B with that cap")


def short_of_memory(p: int, m: int, cap: int) -> Orders:
    """1F1B whose stages begin with at most `cap` forward passes."""
    orders = []
    for i in range(p):
        ahead = min(cap, p - i, m)
        order = [("F", k, 0) for k in range(ahead)]
        for k in range(m):
            order += [("B", k, 0)] + [("F", k + ahead, 0)] * (k + ahead < m)
        orders.append(order)
    return orders
