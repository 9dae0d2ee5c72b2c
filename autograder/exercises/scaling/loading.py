"""Input: does it keep up, and whose samples are they? Oracle: a simulation tick by tick; every sample counted."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import odd_seconds

exercise = Exercise("loading", points=15, minutes=20, extra=True, functions=("input_rate", "waiting", "samples"))


def number(got, call: str) -> None:
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number.")


@exercise.check(points=2)
def the_slowest_stage(student, rng):
    "input_rate: the rate of the slowest stage."
    for n in (1, 2, 3, 3):
        workers = torch.randint(1, 9, (n,), generator=rng).tolist()
        seconds = (torch.randint(1, 40, (n,), generator=rng) / 64).tolist()
        stages = list(zip(workers, seconds, strict=True))
        got, call = student.input_rate(list(stages)), f"input_rate({stages})"
        number(got, call)
        rates = [count / each for count, each in stages]
        mistakes = {
            "The stages work at the same time: only the slowest counts, not the sum.": 1
            / sum(each / count for count, each in stages),
            "That is the fastest stage; the others do not keep up with it.": max(rates),
            "A stage has several workers, each with its own sample.": min(1 / each for _, each in stages),
            "That is the rate of the stage that takes longest for one sample; its workers count, too.": next(
                count / each for count, each in stages if each == max(seconds)
            ),
            "These are seconds for a sample: return samples per second.": 1 / min(rates),
            "The rates do not add up: every sample goes through all stages.": sum(rates),
        }
        mistakes = {s: v for s, v in mistakes.items() if abs(v - min(rates)) > 1e-9}
        checks.close(got, min(rates), name=call, mistakes=mistakes, rtol=1e-9, atol=0.0)


def ticks(load: list[int], compute: int, workers: int, room: int) -> int:
    """Moment by moment: loaders load, the training takes batch after batch; ticks in which it has nothing to do."""
    n, time, waited = len(load), 0, 0
    taken, begun, busy_until = 0, 0, 0
    at_work: dict[int, int] = {}  # batch: when it will be loaded
    loaded: set[int] = set()
    while taken < n:
        for batch in [b for b, when in at_work.items() if when == time]:
            del at_work[batch]
            loaded.add(batch)
        if busy_until <= time and taken in loaded:
            taken, busy_until = taken + 1, time + compute
        while begun < n and len(at_work) < workers and begun - taken < room:
            at_work[begun] = time + load[begun]
            begun += 1
        waited += taken < n and busy_until <= time
        time += 1
    return waited


def all_room(load, compute, workers, room) -> float:
    return ticks(load, compute, workers, len(load))


def in_turn(load: list[int], compute: int, workers: int, room: int) -> float:
    """Give batch i to worker i modulo their number, free or not."""
    free, taken, waited, done = [0] * workers, list[int](), 0, 0
    for i, seconds in enumerate(load):
        begin = max(free[i % workers], taken[i - room] if i >= room else 0)
        free[i % workers] = begin + seconds
        taken.append(max(done, begin + seconds))
        waited += taken[-1] - done
        done = taken[-1] + compute
    return waited


UNIT = 0.25  # seconds of a tick
TELLING = [8, 2, 1, 3, 8, 3, 8, 7, 8, 5]  # ticks: each known mistake waits differently, with 2 workers and room for 3


def waiting_is(student, load: list[int], compute: int, workers: int, room: int, unit: float = UNIT) -> None:
    seconds = [unit * ticks_ for ticks_ in load]
    got = student.waiting(list(seconds), unit * compute, workers, room)
    call = f"waiting({seconds}, {unit * compute:g}, workers={workers}, room={room})"
    number(got, call)
    expected = unit * ticks(load, compute, workers, room)
    mistakes = {
        "No worker loads ahead here: load batches while the training computes.": unit * sum(load),
        "The training waits for the first batch, too.": expected - unit * load[0],
        "Room is limited: batch i begins to load when batch i - room has been taken.": unit
        * all_room(load, compute, workers, room),
        "One batch too many is loaded ahead.": unit * ticks(load, compute, workers, room + 1),
        "One batch too few is loaded ahead.": unit * ticks(load, compute, workers, max(1, room - 1)),
        "All workers load, each its own batch.": unit * ticks(load, compute, 1, room),
        "You use more workers than there are.": unit * ticks(load, compute, len(load), room),
        "The worker that is free first takes the next batch, not the one whose turn it is.": unit
        * in_turn(load, compute, workers, room),
        "That is the total time: return only the waiting.": expected + unit * compute * len(load),
        "There is room as soon as a batch is taken, not only when it has been computed.": unit
        * given_back_late(load, compute, workers, room),
    }
    mistakes = {s: v for s, v in mistakes.items() if abs(v - expected) > 1e-9}
    checks.close(
        got,
        expected,
        name=call,
        mistakes=mistakes,
        rtol=1e-9,
        atol=1e-9,
        why="These are the seconds in which the training has no batch to compute, added up.",
    )


def given_back_late(load: list[int], compute: int, workers: int, room: int) -> float:
    free, done, waited = [0] * workers, [0], 0
    for i, seconds in enumerate(load):
        begin = max(min(free), done[i - room + 1] if i >= room else 0)
        free[free.index(min(free))] = begin + seconds
        taken = max(done[-1], begin + seconds)
        waited += taken - done[-1]
        done.append(taken + compute)
    return waited


@exercise.check(points=5)
def moment_by_moment(student, rng):
    "waiting: loaders with room for some batches, and a training that takes them in order; what a simulation says."
    waiting_is(student, TELLING, 2, 2, 3)
    waiting_is(student, [4, 4, 4, 4, 4, 4], 2, 1, 1)
    for workers, room in ((1, 1), (1, 3), (2, 2), (2, 4), (3, 3), (3, 5), (3, 1), (4, 2)):
        for compute in (2, 5):
            load = torch.randint(1, 12, (9,), generator=rng).tolist()
            waiting_is(student, load, compute, workers, room, unit=UNIT if compute == 2 else odd_seconds(rng))


@exercise.check(points=2, needs="moment_by_moment")
def room_hides_jitter(student, rng):
    "waiting: room hides uneven loading times, but not workers that are too slow."
    for room in (1, 2, 4, 8):
        waiting_is(student, [4, 1, 7, 2, 6, 4, 1, 7, 2, 6], 4, 1, room)
        waiting_is(student, [6] * 10, 4, 1, room)
        waiting_is(student, [6] * 10, 4, 2, max(2, room))


def shuffled(n: int, seed: int, epoch: int) -> torch.Tensor:
    """As the lab has it."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch))


def batch_of(step: int, n: int, batch: int, seed: int) -> torch.Tensor:
    """The samples of all ranks in a step, counted one by one from the first epoch on."""
    epoch, first = 0, 0
    for _ in range(step):
        first += batch
        if first >= n:
            epoch, first = epoch + 1, 0
    return shuffled(n, seed, epoch)[first : first + batch]


def samples_of(student, step: int, rank: int, p: int, n: int, batch: int, seed: int) -> list[int]:
    call = f"samples({step}, {rank}, {p}, n={n}, batch={batch}, seed={seed})"
    got = student.samples(step, rank, p, n, batch, seed)
    checks.tensor(got, name=call, dtype=torch.int64)
    right = batch_of(step, n, batch, seed).tensor_split(p)[rank]
    steps, kept = -(-n // batch), n // batch
    epoch, i = divmod(step, steps)
    order = shuffled(n, seed, epoch)
    share = shuffled(n, seed, epoch).tensor_split(p)[rank]
    mine = torch.arange(n).tensor_split(p)[rank]
    known = {
        "Every rank has the whole batch: rank r takes its share, with tensor_split.": order[
            i * batch : (i + 1) * batch
        ],
        "Each epoch has its own order: `shuffled` takes the epoch, too.": shuffled(n, seed, 0)[
            i * batch : (i + 1) * batch
        ].tensor_split(p)[rank],
        "The last batch of an epoch is smaller, but it is there: an epoch has ceil(n / batch) steps.": shuffled(
            n, seed, step // max(1, kept)
        )[step % max(1, kept) * batch :][:batch].tensor_split(p)[rank],
        "The order is cut into ranks first: with another p, other samples would be in a step. Take the step's "
        "batch, then cut it.": share[i * (batch // p) : (i + 1) * (batch // p)],
        "Each rank shuffles only its own samples: no other rank ever sees them.": mine[
            shuffled(len(mine), seed, epoch)[i * (batch // p) : (i + 1) * (batch // p)]
        ],
        "All ranks need the same seed: one order for all, and each takes its share.": shuffled(n, seed + rank, epoch)[
            i * batch : (i + 1) * batch
        ].tensor_split(p)[rank],
        "`batch` is the batch of all ranks together.": order[i * batch * p : (i + 1) * batch * p].tensor_split(p)[rank],
        "The ranks' shares follow one another, as tensor_split has it.": order[i * batch : (i + 1) * batch][rank::p],
    }
    if not torch.equal(got, right):
        mistake = next((s for s, x in known.items() if torch.equal(x, got) and not torch.equal(x, right)), "")
        raise checks.CheckFailure(
            f"{call} is {show.show(got, 80)}, expected {show.show(right, 80)}.",
            got=show.show(got),
            expected=show.show(right),
            why=f"Step {step} is step {i} of epoch {epoch}, which has {steps} steps.",
            mistake=mistake,
        )
    return got.tolist()


@exercise.check(points=4)
def each_sample_once(student, rng):
    "samples: in an epoch every sample comes once, on any number of ranks, and in another order in the next."
    seed = int(torch.randint(0, 99, (), generator=rng))
    for n, batch, p in ((20, 8, 2), (23, 6, 3), (12, 4, 1), (9, 4, 4)):
        steps = -(-n // batch)
        for epoch in (0, 1):
            seen: list[int] = []
            for step in range(epoch * steps, (epoch + 1) * steps):
                for rank in range(p):
                    seen += samples_of(student, step, rank, p, n, batch, seed)
            checks.that(
                sorted(seen) == list(range(n)), f"n={n}, batch={batch}, p={p}: epoch {epoch} has not every sample once."
            )


@exercise.check(points=2, needs="each_sample_once")
def going_on_with_others(student, rng):
    "samples: a step has the same samples on any number of ranks, so that a training continues with fewer in mid-epoch."
    seed, n, batch = int(torch.randint(0, 99, (), generator=rng)), 50, 12
    for step in (7, 3, 12, 4):
        for p in (4, 3, 1):
            got = [sample for rank in range(p) for sample in samples_of(student, step, rank, p, n, batch, seed)]
            checks.equal(got, batch_of(step, n, batch, seed).tolist(), name=f"step {step} on {p} ranks, rank by rank")
