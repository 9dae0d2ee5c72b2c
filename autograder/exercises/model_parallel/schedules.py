"""Pipeline schedules as data. Oracle: dependencies, an event simulation, closed forms of bubble and memory."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.model_parallel.pipelines import can_be_followed, held, orders_of, play
from autograder.exercises.ready_made import PIPELINES

exercise = Exercise(
    "schedules",
    points=15,
    minutes=15,
    functions=("gpipe", "one_f_one_b", "interleaved"),
    forbid=PIPELINES,
    instead="Write each stage's list of ops yourself.",
)

SIZES = ((2, 5), (3, 3), (4, 9), (4, 2), (1, 1), (1, 3))  # p, m: also fewer microbatches than stages
LOOPED = ((2, 2, 1), (2, 4, 2), (3, 6, 2), (4, 4, 3), (4, 8, 2), (1, 3, 2))  # p, m, v: p divides m


def sizes(rng) -> tuple:
    """`SIZES`, and a pair that is drawn."""
    return *SIZES, (whole_number(rng, 2, 5), whole_number(rng, 6, 12))


def looped(rng, least: int = 1) -> tuple[int, int, int]:
    """Some p, m, v, with at least `least` microbatches for each stage."""
    p = whole_number(rng, 2, 4)
    return p, p * whole_number(rng, least, 4), whole_number(rng, 2, 3)


def followed(student, name: str, *sizes: int):
    """The orders of a schedule, each op once, which all stages together can follow; and how they are called."""
    call = f"{name}({', '.join(map(str, sizes))})"
    p, m, v = (*sizes, 1)[:3]
    orders = orders_of(getattr(student, name)(*sizes), p, m, v, "FB", call)
    can_be_followed(orders, call)
    return orders, call


def seconds_of(rng) -> tuple[float, float]:
    """Random seconds of F and of B, multiples of 1/4 so that sums are exact."""
    f, b = (1 + torch.randint(0, 9, (2,), generator=rng) / 4).tolist()
    return f, b


def takes(orders, call: str, expected: float, f: float, b: float, why: str, mistakes=None) -> None:
    """The makespan of `orders` where a chunk's F and B take f and b."""
    took = play(orders, f, b).makespan
    mistake = next((sentence for sentence, value in (mistakes or {}).items() if abs(took - value) < 1e-9), "")
    if abs(took - expected) > 1e-9:
        raise checks.CheckFailure(
            f"{call} takes {took:g} s where one F takes {f:g} s and one B {b:g} s, expected {expected:g} s.",
            got=f"{took:g} s",
            expected=f"{expected:g} s",
            why=why,
            mistake=mistake,
        )


ONE_AT_A_TIME = "Only one stage works at a time: nothing overlaps. Let more forward passes come first."


@exercise.check(points=1)
def gpipe_is_a_schedule(student, rng):
    "gpipe: each stage does every op once, in an order that all stages can follow together."
    for p, m in sizes(rng):
        followed(student, "gpipe", p, m)


@exercise.check(points=2, needs="gpipe_is_a_schedule")
def gpipe_forward_first(student, rng):
    "gpipe: all forward passes, then all backward passes, each from microbatch 0 on, in (m + p - 1)(F + B) seconds."
    for p, m in sizes(rng):
        orders, call = followed(student, "gpipe", p, m)
        f, b = seconds_of(rng)
        takes(orders, call, (m + p - 1) * (f + b), f, b, "(m + p - 1)(F + B)", {ONE_AT_A_TIME: m * p * (f + b)})
        for i, order in enumerate(orders):
            first = "".join(op for op, *_ in order[:m])
            checks.that(
                first == "F" * m,
                f"{call}[{i}] begins with {' '.join(first)}: GPipe begins the first backward pass when all {m} forward "
                "passes are done.",
            )
        in_turn(orders, call)


def in_turn(orders, call: str) -> None:
    """Each stage does its F and its B in the order of the microbatches."""
    for i, order in enumerate(orders):
        for op in "FB":
            ks = [k for name, k, _ in order if name == op]
            checks.that(
                ks == sorted(ks),
                f"{call}[{i}] does {op} of microbatches {', '.join(map(str, ks))}, in this order. Do each op in the "
                "order of the microbatches, from 0 on.",
            )


@exercise.check(points=1)
def one_f_one_b_is_a_schedule(student, rng):
    "one_f_one_b: each stage does every op once, in an order that all stages can follow together."
    for p, m in sizes(rng):
        followed(student, "one_f_one_b", p, m)


@exercise.check(points=3, needs="one_f_one_b_is_a_schedule")
def one_f_one_b_loses_no_time(student, rng):
    "one_f_one_b: as fast as GPipe, (m + p - 1)(F + B) seconds; each op from microbatch 0 on."
    for p, m in sizes(rng):
        orders, call = followed(student, "one_f_one_b", p, m)
        f, b = seconds_of(rng)
        takes(orders, call, (m + p - 1) * (f + b), f, b, "(m + p - 1)(F + B)", {ONE_AT_A_TIME: m * p * (f + b)})
        in_turn(orders, call)


@exercise.check(points=3, needs="one_f_one_b_is_a_schedule")
def one_f_one_b_holds_little(student, rng):
    "one_f_one_b: stage i never holds more than p - i microbatches."
    for p, m in sizes(rng):
        orders, call = followed(student, "one_f_one_b", p, m)
        for i, order in enumerate(orders):
            most, bound = held(order), min(m, p - i)
            if most > bound:
                raise checks.CheckFailure(
                    f"{call}: stage {i} holds {most} microbatches at a time, expected {bound} at most.",
                    got=f"{most} microbatches between their F and their B",
                    expected=f"p - i = {p - i}" + (f", and there are only {m}" if m < p - i else ""),
                    mistake="That is GPipe's memory: all microbatches." if most == m and m > p else "",
                )
            checks.that(
                most == bound,
                f"{call}: stage {i} never holds more than {most} of {m} microbatches, and 1F1B begins with {bound} "
                "forward passes there: otherwise later stages wait.",
            )


@exercise.check(points=2)
def interleaved_is_a_schedule(student, rng):
    "interleaved: each stage does every op of every chunk once, in an order that all stages can follow together."
    for p, m, v in (*LOOPED, looped(rng)):
        followed(student, "interleaved", p, m, v)


@exercise.check(points=1, needs="interleaved_is_a_schedule")
def interleaved_divides_the_bubble(student, rng):
    "interleaved: the bubble is 1F1B's divided by v, (p - 1)(F + B) / v."
    for p, m, v in (*LOOPED, looped(rng)):
        orders, call = followed(student, "interleaved", p, m, v)
        f, b = seconds_of(rng)
        why = f"m(F + B) + (p - 1)(F + B)/v, where F and B of a whole stage are {v * f:g} and {v * b:g} s."
        takes(orders, call, (m * v + p - 1) * (f + b), f, b, why)


@exercise.check(points=2, needs="interleaved_is_a_schedule")
def interleaved_holds_little(student, rng):
    "interleaved: stage i begins with (v - 1)p + 2(p - i - 1) + 1 forward passes, and never holds more; each in order."
    for p, m, v in ((2, 8, 2), (3, 12, 2), (4, 12, 3), looped(rng, 3)):
        orders, call = followed(student, "interleaved", p, m, v)
        for i, order in enumerate(orders):
            most, bound = held(order), 2 * (p - i - 1) + (v - 1) * p + 1
            checks.that(
                most <= bound,
                f"{call}: stage {i} holds {most} microbatches, counted by chunk; at most {bound} are needed. Let them "
                "pass in groups of p: the first group goes through all chunks before the second one begins.",
                got=f"{most}",
                expected=f"2(p - i - 1) + (v - 1)p + 1 = {bound}",
            )
            warm_up = [op for op, *_ in order].index("B")
            checks.that(
                warm_up == min(m * v, bound),
                f"{call}: stage {i} does {warm_up} forward passes before its first B, expected {min(m * v, bound)}.",
                why="(v - 1)p + 2(p - i - 1) + 1, if there are as many.",
            )
        for chunk in range(v):
            in_turn([[op for op in order if op[2] == chunk] for order in orders], f"Chunk {chunk} of {call}")
