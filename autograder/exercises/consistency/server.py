"""A parameter server that holds back the fast. Oracles: serial SGD, counts of gradients, the trace, virtual time."""

import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends, works
from autograder.exercises.consistency.clocks import Spans, played, uneven
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "server",
    points=35,
    minutes=25,
    functions=("serve", "work", "train"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="A worker sends its gradient to rank 0 and receives w: send, recv, irecv and wait_any.",
)

NUMBER = 8  # bytes
N = 6  # components of w


class Training:
    """Rank 0 serves `workers`; worker j's gradient in iteration k is a w + c[j][k] and takes seconds[j][k]."""

    def __init__(self, seconds: list[list[float]], staleness: float, w, c, a: float = 0.0, lr: float = 1.0):
        self.seconds, self.staleness, self.w, self.c, self.a, self.lr = seconds, staleness, w, c, a, lr
        self.workers, self.steps = len(seconds), len(seconds[0])
        self.units = torch.ones(self.workers, dtype=torch.float64)  # what a gradient adds: see `counted`
        self.setting = f"{self.workers} worker{'s' * (self.workers > 1)}, s = {staleness}, {self.steps} steps"

    @classmethod
    def counted(cls, seconds: list[list[float]], staleness: float, rng: torch.Generator):
        """Each of worker j's gradients adds units[j] to component j of w, and 0 elsewhere: w counts those in it."""
        units = torch.randint(2, 1000, (len(seconds),), generator=rng).double()
        lr = 0.5 ** whole_number(rng, 1, 4)  # sums are exact
        c = -torch.diag(units / lr)[:, None].repeat(1, len(seconds[0]), 1)
        w = torch.randint(-999, 1000, (len(seconds),), generator=rng).double()
        training = cls(seconds, staleness, w, c, lr=lr)
        training.units = units
        return training

    @classmethod
    def bowl(cls, workers: int, steps: int, staleness: float, rng: torch.Generator, dtype=torch.float64):
        """Gradients 2 w + c of random c."""
        c, lr = torch.randn(workers, steps, N, generator=rng).to(dtype), whole_number(rng, 2, 8) / 128
        return cls(uneven(rng, workers, steps), staleness, torch.randn(N, generator=rng).to(dtype), c, 2.0, lr)

    def run(self, student, **machine):
        def arguments(rank: int):
            rest = [self.w.clone(), [self.staleness, self.steps, self.lr]]
            if rank == 0:  # it computes no gradients, and knows none
                return self.a, torch.zeros_like(self.c[0]), [0.0] * self.steps, *rest
            return self.a, self.c[rank - 1].clone(), list(self.seconds[rank - 1]), *rest

        return student.ranks("train", self.workers + 1, arguments, harness="asynchronous", **machine)

    def serial(self, factor: float = 1.0, workers=None) -> list[torch.Tensor]:
        """w before each step of SGD on one machine, and after the last one; the step is the sum over the workers."""
        w, path = self.w, [self.w]
        for k in range(self.steps):
            grads = [self.a * w + self.c[j][k] for j in (range(self.workers) if workers is None else workers)]
            w = w - factor * self.lr * torch.stack(grads).sum(0)
            path.append(w)
        return path


def told(training: Training, rank: int, k: int) -> dict[str, torch.Tensor]:
    """The w after k steps that usual mistakes give to a rank, by the sentence that names each."""
    right, before = training.serial(), max(0, k - 1)
    paths = {
        "That is the mean over the workers: the server adds each gradient as it comes.": training.serial(
            1 / training.workers
        )[k],
        "That goes uphill: w - lr * gradient.": training.serial(-1.0)[k],
        "These are the weights before the step: apply the gradient first, then send w. Or the worker computes with, or "
        "returns, other weights than the last that it has received.": right[before],
        "Each gradient is applied twice.": training.serial(2.0)[k],
        "Only this worker's own gradients are applied: with s = 0 wait for the others', too.": training.serial(
            1.0, [max(0, rank - 1)]
        )[k],
    }
    return {sentence: w for sentence, w in paths.items() if not torch.allclose(w, right[k])}


@exercise.check(points=7, seconds=SECONDS)
def as_one_machine(student, rng):
    "s = 0: every gradient sees the weights of SGD on one machine, whose step is the sum over the workers; w stays."
    for workers in (1, 2, 3):
        bowl_is_right(student, Training.bowl(workers, 4, 0, rng))
    bowl_is_right(student, Training.bowl(2, 3, 0, rng, torch.float32))
    carried(student, rng, lambda: bowl_is_right(student, Training.bowl(2, 3, 0, rng)), "2 workers, s = 0")


def bowl_is_right(student, training: Training) -> None:
    """Every gradient sees the weights of SGD on one machine; so does what is returned, and w stays."""
    run, right, steps = training.run(student), training.serial(), training.steps
    for rank, (_, seen) in enumerate(run.results):
        checks.that(
            len(seen) == (steps if rank else 0),
            f"{training.setting}: rank {rank} computes {len(seen)} gradients, expected "
            + (f"{steps} on each worker." if rank else "0: it is the server."),
        )
        for k, w in enumerate(seen):
            name = f"{training.setting}: the w of rank {rank}'s gradient {k}"
            checks.close(w, right[k], name=name, mistakes=told(training, rank, k))
    for rank, (returned, _) in enumerate(run.results):
        name = f"{training.setting}: the w that {'work' if rank else 'serve'} returns on rank {rank}"
        checks.close(returned, right[-1], name=name, mistakes=told(training, rank, steps))
    for _, _, _, w, _ in run.arguments:
        checks.unchanged(w, training.w, name="w")
    by_the_server(training, run)


def by_the_server(training: Training, run) -> None:
    """All messages are to rank 0 or from it: at least a gradient and an answer of each worker's in each step."""
    elsewhere = next((e for e in sends(run) if e.rank and e.peer), None)
    checks.that(
        elsewhere is None,
        f"{training.setting}: workers send to each other. They must send to rank 0 only, and it answers with w.",
    )
    least = training.steps * training.w.nbytes
    for rank in range(1, training.workers + 1):
        for source, dest, what in ((rank, 0, "a gradient"), (0, rank, "w")):
            sent = sum(e.nbytes for e in sends(run) if (e.rank, e.peer) == (source, dest))
            checks.that(
                sent >= least,
                f"{training.setting}: rank {source} sends {sent} bytes to rank {dest}, expected {least}: {what} in "
                f"each of {training.steps} steps. The server applies the gradients, and answers each with w.",
            )


def counts_of(training: Training, w: torch.Tensor, name: str) -> list[int]:
    """How many gradients of each worker are in w."""
    checks.tensor(w, name=name, shape=(training.workers,), dtype=torch.float64)
    counts = ((w - training.w) / training.units).tolist()
    broken = next((j for j, count in enumerate(counts) if abs(count - round(count)) > 1e-6), 0)
    first, unit = training.w[broken].item(), training.units[broken].item()
    checks.that(
        abs(counts[broken] - round(counts[broken])) <= 1e-6,
        f"{name} has {show.number(w[broken].item())} in component {broken}. Here w begins with {first:g} there, lr is "
        f"{training.lr:g} and each of rank {broken + 1}'s gradients is {-unit / training.lr:g}: w -= lr * gradient "
        f"adds multiples of {unit:g}.",
        got=w,
    )
    return [round(count) for count in counts]


SLOW = [[1.25] * 8, [3.5] * 8, [1.0] * 8]


@exercise.check(points=6, seconds=SECONDS)
def each_gradient_once(student, rng):
    "Whatever s is, in the end w has each gradient once."
    for staleness in (0, 1, 3, math.inf):
        served(student, Training.counted(SLOW, staleness, rng))


def served(student, training: Training):
    """Check that the w that `serve` returns has each gradient once; return the run."""
    run = training.run(student)
    by_the_server(training, run)
    found = counts_of(training, run.results[0][0], f"{training.setting}: the w that serve returns")
    for j, count in enumerate(found):
        checks.that(
            count == training.steps,
            f"{training.setting}: rank {j + 1} has computed {training.steps} gradients, and {count} of them are in "
            "the w that serve returns. Here each of rank j's gradients is the same number in component j - 1, so that "
            "w counts them.",
            got=show.show(found),
            expected=show.show([training.steps] * 3),
        )
    return run


@exercise.check(points=7, needs="each_gradient_once", seconds=SECONDS)
def never_more_than_s_behind(student, rng):
    "A gradient sees all of the worker's own before, and of every other worker all but the last s."
    for staleness in (0, 1, 2, 3):
        for seconds in (SLOW, uneven(rng, 3, 6)):
            training = Training.counted(seconds, staleness, rng)
            workers_see(training, served(student, training))


def workers_see(training: Training, run) -> None:
    """The w of every worker's gradients have what they must."""
    for rank, (_, seen) in enumerate(run.results[1:], start=1):
        for k, w in enumerate(seen):
            sees(training, rank, k, counts_of(training, w, f"{training.setting}: w of rank {rank}"))


def sees(training: Training, rank: int, k: int, counts: list[int]) -> None:
    """The w of a worker's gradient k has what it must."""
    who = f"{training.setting}: the w of rank {rank}'s gradient {k} has"
    own = counts[rank - 1]
    checks.that(
        own == k,
        f"{who} {own} of its own {k} gradients before. A worker reads its own writes: apply its gradient, then send w, "
        "with which the worker computes next.",
    )
    least = min(counts)
    other = counts.index(least) + 1
    checks.that(
        least >= k - training.staleness,
        f"{who} {least} gradients of rank {other}: it is {k - least} iterations ahead, and s = {training.staleness}. "
        "Hold its w back until the slowest worker has caught up.",
    )


@exercise.check(points=5, needs="each_gradient_once", seconds=SECONDS)
def two_messages(student, rng):
    "In each step a worker sends a gradient and receives w, each waited for, and there is no other message."
    for staleness in (0, 2, math.inf):
        training = Training.counted(SLOW, staleness, rng)
        run = served(student, training)
        own = next((e.op for e in run.trace if e.op in ("barrier", "all_reduce", "broadcast")), None)
        checks.that(
            own is None, f"{training.setting}: comm.{own} makes all ranks wait for each other. Use only messages."
        )
        for rank in range(1, 4):
            for source, dest, what in ((rank, 0, "its gradient"), (0, rank, "w")):
                found = [e.nbytes for e in sends(run) if (e.rank, e.peer) == (source, dest)]
                checks.that(
                    found == [3 * NUMBER] * training.steps,
                    f"{training.setting}: rank {source} sends {len(found)} messages of together {sum(found)} bytes to "
                    f"rank {dest}; expected one in each of {training.steps} steps, {what} of {3 * NUMBER} bytes.",
                )
        waited_for(run, training.setting)


def in_rank_order(seconds: list[list[float]]) -> Spans:
    """A server that receives from rank 1, 2, ... in turn, and answers each at once."""
    spans: Spans = [[(0.0, mine[0])] for mine in seconds]
    time = 0.0
    for k in range(1, len(seconds[0])):
        for mine, taken in zip(spans, seconds, strict=True):
            time = max(time, mine[-1][1])
            mine.append((time, time + taken[k]))
    return spans


@exercise.check(points=10, needs="each_gradient_once", seconds=SECONDS)
def nobody_waits_who_may_go_on(student, rng):
    "In virtual time every gradient starts when `clocks` says: no worker waits longer than it must."
    for staleness in (math.inf, 2, 1, 0, 3):
        for seconds in (SLOW, uneven(rng, 3, 6)):
            training = Training.counted(seconds, staleness, rng)
            run, right = served(student, training), played(seconds, staleness)
            spans = [[(e.start, e.end) for e in run.trace if e.rank == r and e.op == "compute"] for r in (1, 2, 3)]
            works(run, [0.0, *map(sum, seconds)], training.setting)
            starts_are(training, spans, right)
            waited_for(run, training.setting)
            workers_see(training, run)


def starts_are(training: Training, spans: Spans, right: Spans) -> None:
    s, seconds = training.staleness, training.seconds
    named = {
        "That is a barrier: all wait for all in every iteration, for any s.": played(seconds, 0),
        "The server receives in the order of ranks, so that a slow one stops those behind it: wait_any.": in_rank_order(
            seconds
        ),
        "You hold workers back one iteration too early: they may be s ahead.": played(seconds, max(0, s - 1)),
    }
    mistake = next((sentence for sentence, value in named.items() if value == spans and value != right), "")
    for w, mine in enumerate(right):
        for k, (start, _) in enumerate(mine):
            got = spans[w][k][0]
            if abs(got - start) > 1e-9:
                early = (
                    "It continues although it is too far ahead"
                    if k > s
                    else "It does not wait for the w that answers it"
                )
                direction = "It waits although it may continue" if got > start else early
                raise checks.CheckFailure(
                    f"{training.setting}: rank {w + 1} starts its gradient {k} at {got:g} s, expected {start:g} s. "
                    f"{direction}.",
                    got=show.show([[a for a, _ in mine] for mine in spans]),
                    expected=show.show([[a for a, _ in mine] for mine in right]),
                    why=f"A gradient takes {show.show(seconds)} s on ranks 1, 2, 3; messages take no time here.",
                    mistake=mistake,
                )
