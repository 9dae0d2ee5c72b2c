"""When iterations start and end under BSP, SSP and ASP. Oracle: time that goes from event to event."""

import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number

exercise = Exercise("clocks", points=20, minutes=15)

Spans = list[list[tuple[float, float]]]


def played(seconds: list[list[float]], staleness: float) -> Spans:
    """Go from one end of an iteration to the next; every idle worker that may begin begins."""
    workers, time = range(len(seconds)), 0.0
    spans: Spans = [[] for _ in workers]

    def finished(w: int) -> int:
        return sum(end <= time for _, end in spans[w])

    while any(finished(w) < len(seconds[w]) for w in workers):
        counts = [finished(w) for w in workers]
        for w, k in enumerate(counts):
            if len(spans[w]) == k < len(seconds[w]) and k - min(counts) <= staleness:
                spans[w].append((time, time + seconds[w][k]))
        time = min(end for mine in spans for _, end in mine if end > time)
    return spans


def shifted(spans: Spans) -> Spans:
    """As if only the worker itself had to have ended: every iteration at once."""
    return [[(0.0, end - start) for start, end in mine] for mine in spans]


def uneven(rng: torch.Generator, workers: int, steps: int) -> list[list[float]]:
    """Seconds in eighths, so that sums are exact; one worker is slow."""
    times = torch.randint(4, 17, (workers, steps), generator=rng) / 8
    times[int(torch.randint(workers, (), generator=rng))] *= 3
    return times.tolist()


def any_seconds(rng: torch.Generator, workers: int, steps: int) -> list[list[float]]:
    """Seconds that are multiples of nothing; one worker is very slow."""
    times = 0.5 + torch.rand(workers, steps, generator=rng, dtype=torch.float64)
    times[int(torch.randint(workers, (), generator=rng))] *= 5
    return times.tolist()


def told(seconds: list[list[float]], staleness: float) -> dict[str, Spans]:
    """What the usual mistakes give, by the sentence that names each."""
    mistakes = {
        "No worker waits for others here, as in ASP. Do you wait for the last of all workers?": played(
            seconds, math.inf
        ),
        "That is a staleness of one more: k may start when all others have finished k - s iterations.": played(
            seconds, staleness + 1
        ),
        "That is BSP, whatever the staleness: all wait for all in every iteration.": played(seconds, 0),
        "A worker does one iteration after the other: k starts when its own k - 1 has ended, or later.": shifted(
            played(seconds, staleness)
        ),
    }
    if staleness >= 1:
        one_less = "That is a staleness of one less: some workers wait although they may continue."
        mistakes = {one_less: played(seconds, staleness - 1), **mistakes}
    return mistakes


def spans_are(student, seconds: list[list[float]], staleness: float) -> Spans:
    got, expected = student.clocks([list(mine) for mine in seconds], staleness), played(seconds, staleness)
    call = f"clocks({show.show(seconds)}, {staleness})"
    checks.that(type(got) in (list, tuple), f"{call} is {show.an(show.type_name(got))}, expected a list.")
    checks.length(got, len(seconds), name=call, noun="list", why="One for each worker.")
    mistake = next((sentence for sentence, value in told(seconds, staleness).items() if agree(got, value)), "")
    for w, (mine, right) in enumerate(zip(got, expected, strict=True)):
        checks.that(
            type(mine) in (list, tuple) and len(mine) == len(right),
            f"{call}[{w}] is {show.show(mine)}, expected a list of {len(right)} pairs, one for each iteration.",
        )
        for k, span in enumerate(mine):
            checks.that(
                is_span(span),
                f"{call}[{w}][{k}] is {show.show(span)}, expected a pair of floats: when it starts and ends.",
            )
            if not close(span, right[k]):
                raise checks.CheckFailure(
                    f"Worker {w}, iteration {k}, with s = {staleness}: from {span[0]:g} to {span[1]:g} s, expected "
                    f"from {right[k][0]:g} to {right[k][1]:g} s.",
                    got=show.show(got),
                    expected=show.show(expected),
                    why=because(expected, seconds, w, k, staleness),
                    mistake=mistake,
                )
    return expected


def is_span(span) -> bool:
    return type(span) in (tuple, list) and len(span) == 2 and all(checks.is_number(x) for x in span)


def close(a, b) -> bool:
    return all(abs(x - y) <= 1e-9 for x, y in zip(a, b, strict=True))


def agree(got, value: Spans) -> bool:
    """Whether every span that can be compared is the same; what is no span is told elsewhere."""
    return all(
        type(a) in (list, tuple)
        and len(a) == len(b)
        and all(is_span(x) and close(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(got, value, strict=True)
    )


def because(spans: Spans, seconds: list[list[float]], w: int, k: int, staleness: float) -> str:
    """Who lets the iteration start."""
    if k == 0:
        return "No worker waits before the first iteration: it starts at 0."
    if math.isinf(staleness) or k <= staleness:
        return f"It waits only for itself: its own iteration {k - 1} ends at {spans[w][k - 1][1]:g} s."
    done = k - int(staleness)
    last = max(range(len(spans)), key=lambda v: spans[v][done - 1][1])
    return (
        f"It may start when all workers have finished {done} iteration{'s' * (done > 1)}; worker {last} is the last, "
        f"at {spans[last][done - 1][1]:g} s, and its own iteration {k - 1} ends at {spans[w][k - 1][1]:g} s."
    )


@exercise.check(points=4)
def bulk_synchronous(student, rng):
    "s = 0, BSP: all start an iteration together, when the last has ended the one before."
    spans_are(student, [[1.0, 1.0, 1.0], [4.0, 1.0, 1.0]], 0)
    for workers in (2, 4):
        spans_are(student, uneven(rng, workers, 5), 0)
    spans_are(student, any_seconds(rng, 3, 4), 0)


@exercise.check(points=4)
def asynchronous(student, rng):
    "s = infinity, ASP: no worker waits for another."
    for workers in (2, 4):
        spans_are(student, uneven(rng, workers, 5), math.inf)
    spans_are(student, any_seconds(rng, 3, 4), math.inf)


@exercise.check(points=8)
def stale_synchronous(student, rng):
    "SSP: no worker is more than s iterations ahead, and none waits longer than it must."
    for staleness in (2, 1, 3, 1, 2):  # with s = 1, BSP is a staleness of one less, too
        spans_are(student, uneven(rng, 3, 8), staleness)
    for staleness in (1, 4):
        seconds = uneven(rng, 2, 10)
        seconds[0][2] = 20.0  # a single late iteration
        spans_are(student, seconds, staleness)
    spans_are(student, any_seconds(rng, 3, 14), whole_number(rng, 5, 9))


@exercise.check(points=4)
def few(student, rng):
    "One worker, one iteration, and more staleness than iterations."
    spans_are(student, uneven(rng, 1, 6), 0)
    spans_are(student, uneven(rng, 1, 6), 2)
    spans_are(student, uneven(rng, 3, 1), 0)
    spans_are(student, any_seconds(rng, 3, 4), 9)
