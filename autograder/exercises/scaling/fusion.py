"""Messages during the backward pass, and the best buckets. Oracle: all ways to cut a list, tried one by one."""

import itertools

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from hpcdl.cost.scaling import Gradient, finished, merged

exercise = Exercise("fusion", points=25, minutes=25, functions=("wfbp", "fuse"))

Pair = tuple[float, int]  # when it is ready, and its bytes


def played(buckets: list[Pair], alpha: float, beta: float) -> list[tuple[float, float]]:
    """One link: each message begins when its bucket is ready and the one before is through."""
    times, free = [], 0.0
    for ready, nbytes in buckets:
        begin = ready if ready > free else free
        free = begin + alpha + beta * nbytes
        times.append((begin, free))
    return times


def cuts(gradients: list[Pair]):
    """Every way to cut the list into runs: 2 to the power of its length less one."""
    n = len(gradients)
    for marks in itertools.product((False, True), repeat=n - 1):
        borders = [0, *(i + 1 for i, mark in enumerate(marks) if mark), n]
        yield [together(gradients[a:b]) for a, b in itertools.pairwise(borders)]


def together(some: list[Pair]) -> Pair:
    return max(ready for ready, _ in some), sum(nbytes for _, nbytes in some)


def end(buckets: list[Pair], alpha: float, beta: float) -> float:
    return played(buckets, alpha, beta)[-1][1]


def soonest(gradients: list[Pair], alpha: float, beta: float) -> float:
    return min(end(buckets, alpha, beta) for buckets in cuts(gradients))


def by_size(gradients: list[Pair], cap: int) -> list[Pair]:
    """Buckets of up to `cap` bytes."""
    buckets: list[list[Pair]] = [[]]
    for gradient in gradients:
        if buckets[-1] and sum(nbytes for _, nbytes in buckets[-1]) + gradient[1] > cap:
            buckets.append([])
        buckets[-1].append(gradient)
    return [together(bucket) for bucket in buckets]


def backward_pass(rng, n: int, unit: float = 0.25) -> list[Pair]:
    """Gradients as a backward pass gives them: times that grow, sizes that do what they like; multiples of 1/4."""
    gaps, sizes = torch.randint(1, 12, (n,), generator=rng).tolist(), torch.randint(1, 40, (n,), generator=rng).tolist()
    return [(unit * ready, nbytes) for ready, nbytes in zip(itertools.accumulate(gaps), sizes, strict=True)]


def pairs_of(got, call: str, what: str) -> list[Pair]:
    checks.that(
        type(got) in (list, tuple)
        and all(type(pair) in (tuple, list) and len(pair) == 2 for pair in got)
        and all(checks.is_number(value) for pair in got for value in pair),
        f"{call} is {show.show(got, 80)}, expected a list of tuples ({what}).",
    )
    return got


@exercise.check(points=7)
def one_message_at_a_time(student, rng):
    "wfbp: each message begins when its bucket is ready and the link is free, and takes alpha + beta n."
    for n, alpha, beta in ((5, 1.0, 0.125), (8, 0.5, 0.25), (6, 4.0, 0.0), (1, 2.0, 0.5), (7, 0.25, 0.03125)):
        buckets = backward_pass(rng, n)
        call = f"wfbp({buckets}, {alpha}, {beta})"
        got = pairs_of(student.wfbp(list(buckets), alpha, beta), call, "begin, end")
        checks.length(got, n, name=call, noun="message", why="One for each bucket.")
        free = 0.0
        for i, ((begin, stop), (ready, nbytes)) in enumerate(zip(got, buckets, strict=True)):
            name, takes = f"{call}: message {i}", alpha + beta * nbytes
            checks.that(
                begin >= ready - 1e-9,
                f"{name} begins at {begin:g}, before its bucket is ready at {ready:g}: you cannot send what the "
                "backward pass has not computed.",
            )
            checks.that(
                begin >= free - 1e-9,
                f"{name} begins at {begin:g}, while the last message lasts until {free:g}: there is only one link.",
            )
            late = (
                " The backward pass continues in the meantime: messages do not wait for its end."
                if begin >= buckets[-1][0]
                else ""
            )
            checks.that(
                begin <= max(ready, free) + 1e-9,
                f"{name} begins at {begin:g}: its bucket was ready at {ready:g} and the link free at {free:g}.{late}",
            )
            mistakes = {
                "Each message pays its alpha.": begin + beta * nbytes,
                "The end is the begin plus the duration.": takes,
                "Its bytes take beta each.": begin + alpha,
            }
            wrong = {s: v for s, v in mistakes.items() if abs(v - begin - takes) > 1e-9}
            checks.close(stop, begin + takes, name=f"{name}: its end", mistakes=wrong, rtol=1e-9, atol=1e-9)
            free = stop


def buckets_of(student, gradients: list[Pair], alpha: float, beta: float) -> tuple[list[Pair], str]:
    """What `fuse` returns, made of neighbours in their order, each ready with its last gradient."""
    call = f"fuse({show.show(gradients, 200)}, {alpha}, {beta})"
    got = pairs_of(student.fuse(list(gradients), alpha, beta), call, "ready, bytes")
    rest = list(gradients)
    for i, (ready, nbytes) in enumerate(got):
        taken: list[Pair] = []
        while rest and sum(size for _, size in taken) < nbytes:
            taken.append(rest.pop(0))
        count = sum(size for _, size in taken)
        checks.that(
            count == nbytes and bool(taken),
            f"{call}: bucket {i} has {nbytes:g} bytes, which no neighbours from there on have together. A bucket takes "
            "gradients that follow one another, each of them once.",
        )
        checks.that(
            ready >= taken[-1][0] - 1e-9,
            f"{call}: bucket {i} is ready at {ready:g}, before its last gradient exists, at {taken[-1][0]:g}.",
        )
        checks.close(float(ready), float(taken[-1][0]), name=f"{call}: when bucket {i} is ready", atol=1e-9)
    checks.that(not rest, f"{call}: the last {len(rest)} gradients are in no bucket: they would not be summed.")
    return got, call


def finishes(student, gradients: list[Pair], alpha: float, beta: float, best: float) -> None:
    got, call = buckets_of(student, gradients, alpha, beta)
    took = end(got, alpha, beta)
    if took <= best + 1e-9 * best:
        return
    mistake = ""
    if len(got) == len(gradients):
        mistake = "Each gradient goes alone, and each pays an alpha."
    elif len(got) == 1:
        mistake = "All gradients are in one bucket: its message begins when the backward pass is over."
    elif any(got == by_size(gradients, cap) for cap in range(1, sum(size for _, size in gradients))):
        mistake = "You cut buckets by size. Use the times of the gradients and the cost of a message, too."
    raise checks.CheckFailure(
        f"{call}: with these {len(got)} buckets the last message ends at {took:g}. Others end at {best:g}.",
        got=show.show(got),
        expected=f"buckets whose messages end at {best:g}",
        mistake=mistake,
    )


# A bucket that is closed as soon as the link is free (Horovod's way) ends later here, and so do all merges of two
# neighbours that each gain something (MG-WFBP's).
TRAPS = (
    ([(1.0, 4), (2.0, 4), (3.0, 4), (3.25, 4)], 2.0, 0.125),
    ([(0.5, 1), (1.0, 1), (1.5, 1), (2.0, 1), (2.5, 30)], 1.0, 0.0625),
    ([(0.25, 12), (2.5, 10), (2.75, 1), (4.0, 2), (4.25, 1)], 1.5, 0.125),
)


@exercise.check(points=11)
def the_best_of_all(student, rng):
    "fuse: no other buckets finish sooner, all of them tried."
    for gradients, alpha, beta in TRAPS:
        finishes(student, gradients, alpha, beta, soonest(gradients, alpha, beta))
    for n in (1, 2, 4, 6, 9, 9, 9):
        for alpha, beta in ((2.0, 0.0625), (0.5, 0.125), (4.0, 0.03125), (0.0, 0.125)):
            gradients = backward_pass(rng, n)
            finishes(student, gradients, alpha, beta, soonest(gradients, alpha, beta))


@exercise.check(points=7, needs="the_best_of_all", seconds=5.0)
def two_hundred_layers(student, rng):
    "fuse: two hundred layers, for which trying all ways would take longer than the age of the universe."
    for n, alpha, beta in ((60, 3.0, 0.0625), (200, 2.0, 0.03125), (200, 100.0, 0.03125)):
        gradients = backward_pass(rng, n)
        ready = [Gradient(*gradient) for gradient in gradients]

        def seconds(nbytes, alpha=alpha, beta=beta):
            return alpha + beta * nbytes

        finishes(student, gradients, alpha, beta, finished(merged(ready, seconds), seconds))
