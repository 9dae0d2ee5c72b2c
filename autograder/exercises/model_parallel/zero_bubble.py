"""B and W apart, and what a bubble costs. Oracle: an event simulation, closed forms, bubbles that were printed."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.model_parallel.pipelines import can_be_followed, held, orders_of, play
from autograder.exercises.model_parallel.published import TABLE_5, one_f_one_b, zb_h1, zb_h2
from autograder.exercises.ready_made import PIPELINES
from autograder.sessions.errors import StudentError

exercise = Exercise(
    "zero_bubble",
    points=15,
    minutes=20,
    functions=("zb_h1", "bubble"),
    uses=("schedules",),
    forbid=PIPELINES,
    instead="Write each stage's list of ops, and go through the lists, yourself.",
)

SIZES = ((2, 4), (3, 5), (4, 4), (5, 11), (1, 3))  # p, m >= p


def drawn(rng) -> tuple[int, int]:
    """Some p, and an m that is no smaller."""
    return whole_number(rng, 2, 5), whole_number(rng, 6, 12)


def followed(student, p: int, m: int):
    call = f"zb_h1({p}, {m})"
    orders = orders_of(student.zb_h1(p, m), p, m, 1, "FBW", call)
    can_be_followed(orders, call)
    return orders, call


def seconds_of(rng) -> tuple[float, float, float]:
    """Random seconds of F, B and a W that is no longer than either, multiples of 1/4 so that sums are exact."""
    f, b = (2 + torch.randint(0, 9, (2,), generator=rng) / 4).tolist()
    w = 0.25 * int(torch.randint(2, int(4 * min(f, b)) + 1, (), generator=rng))
    return f, b, w


@exercise.check(points=2)
def a_schedule(student, rng):
    "zb_h1: F, B and W of each microbatch once, in an order that all stages can follow together."
    for p, m in (*SIZES, (4, 2), drawn(rng)):
        followed(student, p, m)


@exercise.check(points=2, needs="a_schedule")
def no_more_memory(student, rng):
    "zb_h1: no stage holds more than p microbatches between their F and their W, 1F1B's most; the oldest W comes first."
    for p, m in (*SIZES, drawn(rng)):
        orders, call = followed(student, p, m)
        for i, order in enumerate(orders):
            most = held(order)
            checks.that(
                most <= p,
                f"{call}: stage {i} holds {most} microbatches at a time, expected {p} at most. The data for W stay "
                "in memory until W is done: let no more than i W wait on stage i.",
                got=f"{most} microbatches between F and W",
                expected=f"p = {p}",
            )
            least = min(p, m) if i == 0 else 0
            checks.that(
                most >= least,
                f"{call}: stage 0 never holds more than {most} of {m} microbatches, and 1F1B begins with {least} "
                "forward passes there: otherwise later stages wait. Move only W.",
            )
            ks = [k for op, k, _ in order if op == "W"]
            checks.that(
                ks == sorted(ks),
                f"{call}[{i}] does W of microbatches {', '.join(map(str, ks))}, in this order. The longest waiting W "
                "comes first: waiting.pop(0).",
            )


@exercise.check(points=3, needs="a_schedule")
def smaller_bubble(student, rng):
    "zb_h1: m(F + B + W) + (p - 1)(F + B - W) seconds where messages are free and W is no longer than F and B."
    for p, m in (*SIZES, drawn(rng)):
        orders, call = followed(student, p, m)
        f, b, w = seconds_of(rng)
        took, expected = play(orders, f, b, w).makespan, m * (f + b + w) + (p - 1) * (f + b - w)
        if took > expected:
            plain = m * (f + b + w) + (p - 1) * (f + b + w)
            at_once = (
                "Each W comes right after its B, while the previous stage waits for its own B. Let i of the W wait."
            )
            raise checks.CheckFailure(
                f"{call} takes {took:g} s where F, B and W take {f:g}, {b:g} and {w:g} s, expected {expected:g} s.",
                got=f"{took:g} s",
                expected=f"{expected:g} s (1F1B: {plain:g} s)",
                mistake=at_once if all("".join(op for op, *_ in order).count("BW") == m for order in orders) else "",
            )


def bubble_is(student, orders, seconds, message: float, call: str, decimals: int | None = None) -> None:
    """The student's bubble of `orders` is that of the event simulation."""
    f, b, w = seconds
    got = student.bubble([list(order) for order in orders], f, b, w, message)
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number between 0 and 1.")
    played = play(orders, f, b, w, message)
    work = sum(op == "F" for op, *_ in orders[0]) * (f + b + w)
    expected = 1 - work / played.seconds
    mistakes = bubble_mistakes(orders, f, b, w, message, played, work)
    checks.close(
        got,
        expected if decimals is None else round(expected, decimals),
        name=call,
        rtol=1e-9 if decimals is None else 0.0,
        atol=1e-12 if decimals is None else 0.6 * 10.0**-decimals,
        why="(t - m(F + B + W)) / t, with t the seconds of the stage that takes longest from its first op to its last.",
        mistakes={sentence: value for sentence, value in mistakes.items() if abs(value - expected) > 1e-6},
    )


def bubble_mistakes(orders, f, b, w, message, played, work) -> dict[str, float]:
    """What known mistakes give, by the sentence that names them."""
    spans = [stop - start for start, stop in zip(played.starts, played.stops, strict=True)]
    free = play(orders, f, b, w).seconds
    alone = len(orders) == 1
    return {
        "Take the stage that takes longest, which need not be the first one.": 1 - work / spans[0],
        "A message comes only from another stage: what a stage has computed itself is there at once.": 1
        - work / (played.seconds + message * alone),
        "Your t runs from the batch's first op to its last, on different stages: take the one stage that takes longest "
        "from its own first op to its last.": 1 - work / played.makespan,
        "This is idle time over work: divide by the total time.": (played.seconds - work) / work,
        "Your messages are free: a result arrives `message` seconds after it is computed.": 1 - work / free,
        "This is the mean over the stages: take the one that takes longest.": 1 - len(spans) * work / sum(spans),
        "In a schedule without W, a B does both: it takes b + w.": 1
        - work / max(play(orders, f, b, 0.0, message).seconds, 1e-9),
        "That is the share of working time: the bubble is the rest.": work / played.seconds,
    }


@exercise.check(points=2)
def by_hand(student, rng):
    "bubble: one stage has none; two stages idle for half of the time with one microbatch, for less with more."
    bubble_is(student, [[("F", 0, 0), ("B", 0, 0)]], (1.0, 2.0, 0.5), 3.0, "bubble of one stage")
    orders = [[("F", 0, 0), ("B", 0, 0)]] * 2
    bubble_is(student, orders, (1.0, 1.0, 0.0), 0.0, "bubble of F0 B0 on 2 stages, f = b = 1")
    m = whole_number(rng, 2, 9)
    orders = [[(op, k, 0) for op in "FB" for k in range(m)]] * 2
    bubble_is(student, orders, (1.0, 1.0, 0.0), 0.0, f"bubble of GPipe on 2 stages, m = {m}, f = b = 1")


@exercise.check(points=2, needs="by_hand")
def any_schedule(student, rng):
    "bubble: of 1F1B, ZB-H1 and ZB-H2, with messages, and with B and W as one op."
    for p, m in ((2, 3), (3, 6), (4, 5)):
        seconds, message = seconds_of(rng), 0.25 * int(torch.randint(1, 4, (), generator=rng))
        for name, schedule in (("1F1B", one_f_one_b), ("ZB-H1", zb_h1), ("ZB-H2", zb_h2)):
            call = f"bubble of {name}, p = {p}, m = {m}, f, b, w = {seconds}, message = {message}"
            bubble_is(student, schedule(p, m), seconds, message, call)
    one_by_one = [(op, k, 0) for k in range(2) for op in "FBW"]
    orders = [one_by_one, sorted(one_by_one, key=lambda op: op[0] == "W")]
    bubble_is(student, orders, (1.0, 1.0, 3.0), 0.0, "bubble of a schedule whose last stage takes longest")


@exercise.check(points=3, needs="any_schedule", seconds=15)
def as_printed(student, rng):
    "Your bubbles equal those of table 5 of Zero Bubble, to four decimals, also with your zb_h1."
    for p, m, (f, b, w, message), printed in TABLE_5:
        for name, schedule, figure in zip(
            ("1F1B", "your zb_h1", "ZB-H2"), (one_f_one_b, student.zb_h1, zb_h2), printed, strict=True
        ):
            setting = f"{name}, p = {p}, m = {m}, times of table 9"
            orders = schedule(p, m)
            if name == "your zb_h1":
                right = 1 - m * (f + b + w) / play(followed(student, p, m)[0], f, b, w, message).seconds
                said = f"{setting}: its bubble is {right:.4f}, and Qi et al. 2024 printed {figure}."
                checks.that(abs(right - figure) <= 0.51e-4, said)
            checks.close(
                student.bubble(orders, f, b, w, message),
                figure,
                name=f"bubble of {setting}",
                rtol=0.0,
                atol=0.51e-4,
                why="Qi et al. 2024 printed this bubble rate.",
            )


@exercise.check(points=1, needs="by_hand")
def who_waits_for_ever(student, rng):
    "bubble: raises ValueError if the stages wait for each other forever, instead of running forever."
    is_stuck(student, [[("F", 0, 0), ("B", 0, 0)], [("B", 0, 0), ("F", 0, 0)]], 1, 0)
    for schedule in (one_f_one_b, zb_h1):
        p, m = drawn(rng)
        orders, i, k = schedule(p, m), whole_number(rng, 0, p - 1), whole_number(rng, 0, m - 1)
        goes_through(student, orders, f"p = {p}, m = {m}")
        swap = {("F", k, 0): ("B", k, 0), ("B", k, 0): ("F", k, 0)}
        orders[i] = [swap.get(op, op) for op in orders[i]]
        is_stuck(student, orders, i, k)
    circle = [[(op, k, 0) for k in pair for op in "FB"] for pair in ((0, 1), (1, 0))]
    earlier, later = [("F", 0, 0), ("B", 0, 0), ("F", 1, 0), ("B", 1, 0)], [(op, k, 0) for op in "FB" for k in (0, 1)]
    why = "B0 on stage 0, which has it before F1, needs B0 on stage 1, which has it after F1"
    is_stuck(student, [earlier, later], 0, 0, why)
    goes_through(student, [later, earlier], "p = 2, m = 2, F1 before B0 on stage 0 only")
    goes_through(student, [later, [("F", 1, 0), ("F", 0, 0), *later[2:]]], "p = 2, m = 2, F1 before F0 on stage 1")
    is_stuck(student, circle, 0, 0, "B0 on stage 0, which has it before F1, needs B0 on stage 1, where it follows F1")


def goes_through(student, orders, sizes: str) -> None:
    """The student's bubble is a number where all stages can continue."""
    try:
        got = student.bubble([list(order) for order in orders], 1.0, 1.0, 1.0, 0.0)
    except StudentError as error:
        if error.is_a(ValueError):
            checks.fail(
                f"bubble raises ValueError for a schedule with {sizes} that all stages can follow. Raise it only if no "
                "stage can continue."
            )
        raise
    checks.that(
        checks.is_number(got),
        f"bubble of a schedule with {sizes} is {show.an(show.type_name(got))}, expected a number.",
    )


def is_stuck(student, orders, i: int, k: int, why: str = "") -> None:
    """The student's bubble says that stage i can never do B of microbatch k, which its order has before F."""
    try:
        got = student.bubble([list(order) for order in orders], 1.0, 1.0, 1.0, 0.0)
    except StudentError as error:
        if error.is_a(ValueError):
            return
        if error.kind == "exception" and error.type in ("RuntimeError", "AssertionError", "Exception"):
            checks.fail(f"Where no stage can continue, bubble raises {error.type}: raise ValueError.")
        raise
    checks.fail(
        (why or f"Stage {i} is to do B{k} before F{k}")
        + f", which is impossible, but bubble returns {show.show(got)}. If no stage "
        "can continue, raise ValueError with a sentence that says so."
    )
