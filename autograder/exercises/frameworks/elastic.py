"""Continuing with one process fewer. Oracle: an undisturbed training."""

from collections import Counter
from copy import deepcopy

import torch
from torch.nn.functional import cross_entropy

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, works
from autograder.exercises.drawing import whole_number
from autograder.exercises.frameworks.serial import MOMENTUM, RTOL, network, samples, weights_agree, weights_of
from autograder.exercises.ready_made import RANKS
from autograder.exercises.restarts import comes_from_files, momentum_of

exercise = Exercise(
    "elastic",
    points=15,
    minutes=20,
    functions=("train_elastic",),
    forbid=RANKS,
    instead="Here ranks communicate by `comm`: sum gradients with ring_all_reduce.",
)

SAVE_EVERY = 5
STILL = "The weights have not changed: the optimizer's rate is 0 until you set it, in each step to that step's rate."
MEAN_OF_MEANS = (
    "A mean of means: a rank with two samples counts as much as one with three. Divide sums by the number of samples "
    "in the whole batch."
)
OWN_LENGTH = "A step may have fewer samples than the first one: divide by len(batches[step])."
NEVER = 10**9


def lr_at(step: int) -> float:
    return 0.2 / (1 + step / 4)


class Job:
    """Some steps' batches of a few samples, every other one of one less, and the undisturbed training of one
    process."""

    def __init__(self, rng, steps: int = 20, n: int = 30, batch: int = 8):
        self.weights, (self.x, self.y) = weights_of("plain", rng), samples(n, rng)
        self.batches = [torch.randperm(n, generator=rng)[: batch - step % 2] for step in range(steps)]

    def run(self, student, p: int, files: dict, dies: int = NEVER, **machine):
        def arguments(rank):
            return deepcopy((self.weights, self.x, self.y, self.batches, files, dies))

        return student.ranks("train_elastic", p, arguments, harness="resuming", **machine)

    def momentum(self, step: int) -> torch.Tensor:
        """The momentum that one process has after so many steps."""
        before, after = (self.serial(until=step)[1] for step in (step - 1, step))
        return momentum_of(before, after, lr_at(step - 1))

    def serial(
        self, restarted_at: int = NEVER, forgets: str = "", until: int = NEVER
    ) -> tuple[list[float], list[torch.Tensor]]:
        """All losses and the last weights; with `forgets`, after a restart: momentum, rate, or weights; or a batch's
        own length. `until`: only so many steps."""
        model = network("plain", self.weights)
        optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=MOMENTUM)
        losses = []
        for step, chosen in enumerate(self.batches[:until]):
            if step == restarted_at and forgets == "momentum":
                optimizer.state.clear()
            if step == restarted_at and forgets == "weights":
                network_again = network("plain", self.weights)
                model.load_state_dict(network_again.state_dict())
            late = step >= restarted_at and forgets == "rate"
            optimizer.param_groups[0]["lr"] = lr_at(step - restarted_at if late else step)
            loss = cross_entropy(model(self.x[chosen]), self.y[chosen])
            optimizer.zero_grad()
            (loss * len(chosen) / len(self.batches[0]) if forgets == "length" else loss).backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [param.detach() for param in model.parameters()]

    def mean_of_means(self, p: int) -> list[torch.Tensor]:
        """The weights where ranks with few samples count as much as those with many."""
        model = network("plain", self.weights)
        optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=MOMENTUM)
        for step, chosen in enumerate(self.batches):
            optimizer.param_groups[0]["lr"] = lr_at(step)
            optimizer.zero_grad()
            for mine in (chosen[rank::p] for rank in range(p)):
                (cross_entropy(model(self.x[mine]), self.y[mine]) / p).backward()
            optimizer.step()
        return [param.detach() for param in model.parameters()]


def on_disk(run, p: int, setting: str, before: dict | None = None) -> dict:
    """The files after a run; two ranks that write one file have written half of each."""
    files, writers = dict(before or {}), dict[tuple, int]()
    works(run, [float(len(log)) for _, _, log, *_ in run.results], setting)  # a write takes a second of the machine's
    for rank, (_, _, log, *_) in enumerate(run.results):
        for moment, name, _ in log:
            other = writers.setdefault((name, moment), rank)
            checks.that(
                other == rank,
                f"{setting}: ranks {other} and {rank} write {name!r} at the same time, and the file is neither's. "
                "All ranks have the same state: rank 0 writes it.",
            )
    for _, name, content in sorted((e for r in run.results for e in r[2]), key=lambda event: event[0]):
        files[name] = content
    checks.that(bool(files), f"{setting}: nothing is on the disk after {SAVE_EVERY} steps: disk.write.")
    return files


def losses_are(job: Job, losses, first: int, last: int, setting: str) -> None:
    checks.that(
        type(losses) is dict,
        f"{setting}: train_elastic returns {show.show(losses, 60)}; expected a dict, the mean loss by step.",
    )
    right = job.serial()[0]
    checks.equal(sorted(losses), list(range(first, last)), name=f"{setting}: the list of steps in the dict")
    for step in range(first, last):
        checks.close(
            losses[step],
            right[step],
            name=f"{setting}: the loss of step {step}",
            why="The mean over the whole batch: each rank's share, added up over the ranks.",
            rtol=RTOL,
        )


@exercise.check(points=4, seconds=2 * SECONDS)
def as_one_process(student, rng):
    "On 1 to 4 processes, whose shares of 8 or 7 samples need not be equal: losses and weights of one process."
    for p, steps in ((2, 20), (1, 6), (3, 6), (4, 4)):
        as_one(student, Job(rng, steps), p, f"p = {p}")
    carried(student, rng, lambda: as_one(student, Job(rng, 4), 2, ""), "p = 2")


@exercise.check(points=1, seconds=SECONDS, needs="as_one_process")
def more_ranks_than_samples(student, rng):
    "A rank without samples takes part in every step."
    as_one(student, Job(rng, steps=6, batch=2), 3, "p = 3, 2 samples in a batch")


def as_one(student, job: "Job", p: int, setting: str) -> None:
    run = job.run(student, p, {})
    every_sample_once(job, run, 0, setting)
    losses, weights = job.serial()
    for rank, (returned, _, _, got, *_) in enumerate(run.results):
        mistakes = {STILL: lambda: job.weights, OWN_LENGTH: lambda: job.serial(forgets="length")[1]}
        if 1 < p < len(job.batches[-1]):
            mistakes[MEAN_OF_MEANS] = lambda: job.mean_of_means(p)
        weights_agree(got, weights, f"{setting}, rank {rank}", mistakes)
        losses_are(job, returned, 0, len(losses), f"{setting}, rank {rank}")


def every_sample_once(job: Job, run, first: int, setting: str) -> None:
    """In each step the ranks' samples are the batch, none lost and none twice."""
    for k in range(len(run.results[0][1])):
        got = sorted(i for _, asked, *_ in run.results for i in (asked[k] if k < len(asked) else []))
        expected = sorted(job.batches[first + k].tolist())
        twice = checks.duplicates(got)
        lost = sorted(set(expected) - set(got))
        said = [f"samples {twice} are used more than once"] if twice else []
        said += [f"samples {lost} are lost"] if lost else []
        other = sorted(set(got) - set(expected))
        said += [f"samples {other} are of another batch"] if other else []
        checks.that(not said, f"{setting}: in step {first + k} {' and '.join(said)}.")


def ends_right(job: Job, run) -> None:
    for _, _, _, got, *_ in run.results:
        weights_agree(got, job.serial()[1], "", {})


@exercise.check(points=6, seconds=2 * SECONDS, needs="as_one_process")
def one_fewer(student, rng):
    "All die in step 7, and fewer or more continue from step 5: the losses, the momentum and the rate of one process."
    for before, p, dies, steps in ((4, 3, 7, 9), (2, 1, 7, 12), (2, 3, 12, 13)):
        job, start = Job(rng, steps), dies // SAVE_EVERY * SAVE_EVERY
        setting = f"{before} processes until step {dies}, then {p}"
        files = on_disk(job.run(student, before, {}, dies), before, setting)
        restarts(student, job, p, files, rng, start, setting)


def restarts(student, job: Job, p: int, files: dict, rng, start: int, setting: str) -> None:
    def ask():
        continues(job, job.run(student, p, files), start, setting)

    def still(others):
        ends_right(job, job.run(student, p, others))

    comes_from_files(files, rng, ask, still, setting, [job.momentum(start)])


def continues(job: Job, run, start: int, setting: str) -> None:
    """The restarted run does the steps from `start` on, as one process does."""
    weights = job.serial()[1]
    for rank, (returned, asked, _, got, *_) in enumerate(run.results):
        checks.that(
            len(asked) == len(job.batches) - start,
            f"{setting}: {len(asked)} steps are done after the restart, expected {len(job.batches) - start}: {start} "
            "were done when the last complete state was due. Save under the name that the restart reads, with the "
            "number of steps done, and continue from that number.",
        )
        mistakes = {
            "The momentum is not restored: save the optimizer's state, too.": "momentum",
            "The learning rate starts again: use lr_at(step) with the restored step.": "rate",
            "The weights start again: load them from the checkpoint.": "weights",
        }
        found = {said: lambda what=what: job.serial(start, what)[1] for said, what in mistakes.items()}
        weights_agree(got, weights, f"{setting}, rank {rank}", found)
        losses_are(job, returned, start, len(job.batches), f"{setting}, rank {rank}")
    every_sample_once(job, run, start, setting)


@exercise.check(points=2, seconds=SECONDS, needs="as_one_process")
def one_writer(student, rng):
    "Only one rank writes each state, only every five steps, also the one that is left."
    for p, most in ((whole_number(rng, 2, 4), 20), (whole_number(rng, 2, 4), 14), (1, 14)):
        steps = whole_number(rng, SAVE_EVERY, most)
        job = Job(rng, steps=steps)
        run = job.run(student, p, {})
        ends_right(job, run)
        on_disk(run, p, f"p = {p}")
        writes = [len(log) for _, _, log, *_ in run.results]
        checks.that(
            sorted(writes)[:-1] == [0] * (p - 1),
            f"p = {p}: the ranks write {writes} files. All have the same state: one rank writes it, the others wait.",
        )
        most = steps // SAVE_EVERY
        checks.that(
            max(writes) <= 2 * most, f"p = {p}: {max(writes)} files in {steps} steps: save after steps 5, 10, ..."
        )
        names = [name for _, _, log, *_ in run.results for _, name, _ in log]
        ((name, times),) = Counter(names).most_common(1)
        checks.that(
            times <= most + 1,  # and perhaps at the end
            f"p = {p}: {name!r} is written {times} times in {steps} steps: write it once after step 5, once after step "
            "10, and so on.",
        )
        for write in writes_of(run):
            done = steps_before(run, write)
            checks.that(
                done % SAVE_EVERY == 0 or done == steps,
                f"p = {p}: rank {write.rank} writes a file after step {done}: a state is saved after steps 5, 10, ..., "
                "and nothing in between.",
            )


def writes_of(run) -> list:
    """The seconds in which a rank writes, in order."""
    return sorted((event for event in run.trace if event.op == "compute"), key=lambda event: event.end)


def steps_before(run, write) -> int:
    """How many steps the rank that writes has begun before."""
    *_, began = run.results[write.rank]
    return sum(moment <= write.start for moment in began)


@exercise.check(points=2, seconds=SECONDS, needs="as_one_process")
def a_barrier_before_going_on(student, rng):
    "No rank begins the next step before the state is on the disk."
    for p, least in ((2, SAVE_EVERY + 1), (whole_number(rng, 2, 4), 2 * SAVE_EVERY + 1)):
        job = Job(rng, steps=whole_number(rng, least, 20))
        run = job.run(student, p, {})
        ends_right(job, run)
        on_disk(run, p, f"p = {p}")
        began = [moments for *_, moments in run.results]
        for write in writes_of(run):
            done = steps_before(run, write)
            if done < len(job.batches):
                all_wait(run, write.end, done, [moments[done] for moments in began])


def all_wait(run, written: float, step: int, began: list[float]) -> None:
    """Every rank meets the others after the write, and begins the next step afterwards."""
    met = {event.rank for event in run.trace if event.op == "barrier" and event.end >= written}
    checks.that(
        met == set(range(len(began))),
        f"The others continue while rank 0 still writes: a step later the state of step {step} may not be on the disk. "
        "comm.barrier() after the write, on all ranks.",
    )
    for rank, moment in enumerate(began):
        checks.that(
            moment >= written - 1e-9,
            f"Rank {rank} begins step {step} at {moment:g} s, and the state of the steps before is on the disk at "
            f"{written:g} s. comm.barrier() after the write and before the next step, on all ranks.",
        )
