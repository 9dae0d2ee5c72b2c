"""Five training scripts, each with one mistake to mend. Oracle: one process on the samples of each step."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import SimpleNamespace

import torch
from torch.nn.functional import cross_entropy

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, carrying, one_of, works
from autograder.exercises.drawing import whole_number
from autograder.exercises.frameworks.ddp import env_of
from autograder.exercises.frameworks.serial import (
    MOMENTUM,
    NUMBER,
    RTOL,
    network,
    numel,
    samples,
    weights_agree,
    weights_of,
)
from autograder.exercises.ready_made import RANKS
from autograder.exercises.restarts import comes_from_files, momentum_of
from autograder.exercises.sharding.save_load import after, moments
from autograder.sessions.errors import StudentError

exercise = Exercise(
    "broken",
    points=15,
    minutes=17,
    functions=("shuffled", "accumulated", "placed", "saved", "logged"),
    forbid=RANKS,
    instead="Here ranks communicate by `comm`: sum gradients with `update`, losses with ring_all_reduce.",
)

LR = 0.1
Step = Sequence[tuple[torch.Tensor, float]]  # samples, and the factor of the sum of their losses


class Job:
    """n samples, the weights of "plain", and what scripts make of them on p ranks."""

    def __init__(self, p: int, n: int, setting: str, rng: torch.Generator):
        self.p, self.setting = p, setting
        self.weights, (self.x, self.y) = weights_of("plain", rng), samples(n, rng)

    def run(self, student, name: str, parts, files: dict | None = None):
        def arguments(rank):
            return deepcopy((self.weights, self.x, self.y, parts(rank), LR, files or {}))

        return student.ranks(name, self.p, arguments, harness="mending")

    def trained(self, steps: Sequence[Step]) -> list[torch.Tensor]:
        """The weights of one process after these steps."""
        model = network("plain", self.weights)
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM)
        for step in steps:
            optimizer.zero_grad()
            for chosen, factor in step:
                (factor * cross_entropy(model(self.x[chosen]), self.y[chosen], reduction="sum")).backward()
            optimizer.step()
        return [param.detach() for param in model.parameters()]

    def agrees(self, run, steps: Sequence[Step], mistakes: Mapping[str, Sequence[Step]], numbers: int = 0) -> None:
        """Each rank has the weights of one process, and gradients were sent once in each step; `numbers` more may be
        summed."""
        told = {said: lambda wrong=wrong: self.trained(wrong) for said, wrong in mistakes.items()}
        for rank, (_, weights, *_) in enumerate(run.results):
            weights_agree(weights, self.trained(steps), f"{self.setting}: rank {rank}", told)
        most = 2 * (self.p - 1) * (len(steps) * numel("plain") + numbers) * NUMBER
        sent = sum(event.nbytes for event in carrying(run))
        checks.that(
            sent <= most,
            f"{self.setting}: all ranks together send {sent:,} bytes; {most:,} are enough: the "
            "gradients once in each step" + (", and the losses to log." if numbers else "."),
        )

    def each_once(self, run, epochs: Sequence[torch.Tensor], what: str, advice: str) -> None:
        """In each part of the training, the samples of all ranks together are `epochs[k]`, once each."""
        used = [[i for chosen in asked for i in chosen] for _, _, asked, *_ in run.results]
        shares = [sum(len(expected[rank :: self.p]) for expected in epochs) for rank in range(self.p)]
        checks.that(
            [len(mine) for mine in used] == shares,
            f"{self.setting}: the ranks use {', '.join(str(len(mine)) for mine in used)} samples; expected "
            f"{', '.join(map(str, shares))}. {advice}",
        )
        begin = [0] * self.p
        for k, expected in enumerate(epochs):
            ends = [b + len(expected[rank :: self.p]) for rank, b in enumerate(begin)]
            got = sorted(i for mine, b, e in zip(used, begin, ends, strict=True) for i in mine[b:e])
            begin = ends
            twice = checks.duplicates(got)
            lost = sorted(set(expected.tolist()) - set(got))
            said = [f"samples {show.show(twice, 40)} are used more than once"] if twice else []
            said += [f"samples {show.show(lost, 40)} are missing"] if lost else []
            checks.that(not said, f"{self.setting}: in {what} {k} {' and '.join(said)}. {advice}")


def mean_of(chosen: torch.Tensor) -> Step:
    return [(chosen, 1 / len(chosen))]


def batches_of(n: int, sizes: Sequence[int], rng: torch.Generator) -> list[torch.Tensor]:
    return [torch.randperm(n, generator=rng)[:size] for size in sizes]


@exercise.check(points=3, seconds=SECONDS)
def a_new_order_in_each_epoch(student, rng):
    "shuffled: each epoch has the sampler's order of that epoch, and the weights of one process."
    batch, epochs = whole_number(rng, 3, 5), whole_number(rng, 2, 4)
    orders = [torch.randperm(12, generator=torch.Generator().manual_seed(epoch)) for epoch in range(epochs)]

    def steps(p, orders) -> list[Step]:
        shares = [[order[rank::p].split(batch) for rank in range(p)] for order in orders]
        return [mean_of(torch.cat(parts)) for ranks in shares for parts in zip(*ranks, strict=True)]

    def whole(job):
        parts = lambda _: ("model", "optimizer", "loss_sum", "sampler", batch, epochs, "comm")  # noqa: E731
        run = job.run(student, "shuffled", parts)
        job.each_once(run, orders, "epoch", "Each rank goes through its sampler once in each epoch.")
        before = [orders[max(0, epoch - 1)] for epoch in range(epochs)]
        after = [torch.randperm(12, generator=torch.Generator().manual_seed(epoch + 1)) for epoch in range(epochs)]
        told = {
            "Every epoch has the order of epoch 0: the sampler must be told the epoch, before it is read.": (
                steps(job.p, orders[:1] * epochs)
            ),
            "Each epoch has the order of the epoch before: tell the sampler the epoch before you read it.": (
                steps(job.p, before)
            ),
            "The orders are those of epochs 1, 2, ...: the first epoch has number 0.": steps(job.p, after),
        }
        job.agrees(run, steps(job.p, orders), told)

    for p in (2, 3, 1):
        whole(Job(p, 12, f"shuffled, p = {p}, {epochs} epochs", rng))
    job = Job(2, 12, f"shuffled, p = 2, {epochs} epochs", rng)
    carried(student, rng, lambda: whole(job), job.setting)


@exercise.check(points=3, seconds=SECONDS)
def the_mean_of_a_step(student, rng):
    "accumulated: a step's gradient is the mean over all its samples, in any number of passes."
    for p, sizes, passes in ((2, (8, 8, 8), 2), (1, (9, 9), 3), (2, (10, 6, 7), 3)):
        job = Job(p, 16, f"accumulated, p = {p}, steps of {', '.join(map(str, sizes))} samples in {passes} passes", rng)
        batches = batches_of(16, sizes, rng)
        parts = [[part for r in range(p) for part in chosen[r::p].chunk(passes)] for chosen in batches]
        run = job.run(
            student, "accumulated", lambda _, b=batches, k=passes: ("model", "optimizer", "loss_sum", b, k, "comm")
        )
        job.each_once(run, batches, "step", "Each rank takes chosen[comm.rank :: comm.size].")

        def weighted(factor, parts=parts) -> list[Step]:
            return [[(part, factor(part, step)) for part in step] for step in parts]

        told: dict[str, Sequence[Step]] = {
            "A step's gradient is as many times too large as there are passes: each pass adds a whole mean.": weighted(
                lambda part, _, p=p: 1 / (len(part) * p)
            ),
            "A mean of means: a pass with few samples counts as much as one with many. Divide each pass's sum by the "
            "number of samples in the whole step.": weighted(lambda part, _, p=p, k=passes: 1 / (len(part) * p * k)),
            "Gradients are too small: a sum of losses is divided by the samples of the step, once.": weighted(
                lambda _, step, k=passes: 1 / sum(map(len, step)) / k
            ),
            "Only the last pass of each rank counts: gradients must accumulate.": [
                [(chosen[r::p].chunk(passes)[-1], 1 / len(chosen)) for r in range(p)] for chosen in batches
            ],
        }
        right = [mean_of(chosen) for chosen in batches]
        close = {said for said, wrong in told.items() if same(job.trained(wrong), job.trained(right))}
        job.agrees(run, right, {said: wrong for said, wrong in told.items() if said not in close})


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.allclose(x, y, rtol=1e-9) for x, y in zip(a, b, strict=True))


@exercise.check(points=3, seconds=SECONDS)
def on_several_machines(student, rng):
    "placed: on 2 machines each sample is used by one rank, and each process has a GPU of its machine."
    for p, each in ((4, 2), (2, 2), (2, 1), (6, 3)):
        job = Job(p, 14, f"placed, {p} processes, {each} on each machine", rng)
        batches = batches_of(14, (p * 2, p * 2 - 1), rng)
        run = job.run(
            student,
            "placed",
            lambda rank, b=batches, p=p, each=each: (
                env_of(rank, p, each),
                "model",
                "optimizer",
                "loss_sum",
                b,
                "comm",
            ),
        )
        advice = "LOCAL_RANK counts on one machine: which variable counts on all of them?"
        job.each_once(run, batches, "step", advice)
        job.agrees(run, [mean_of(chosen) for chosen in batches], {})
        for rank, (device, *_) in enumerate(run.results):
            checks.equal(
                device,
                f"cuda:{rank % each}",
                name=f"{job.setting}: the device that rank {rank} returns",
                mistakes={"Each machine has GPUs 0, 1, ...: the device has the number LOCAL_RANK.": f"cuda:{rank}"}
                if rank >= each
                else None,
            )


@exercise.check(points=3, seconds=2 * SECONDS)
def killed_at_any_write(student, rng):
    "saved: killed at any moment, the script continues from the last complete state with the weights of one process."
    p, every = 2, whole_number(rng, 2, 4)
    states = f"a state after every {every} of {2 * every + 1} steps"
    job = Job(p, 16, f"saved, p = 2, {states}", rng)
    batches = batches_of(16, (6, 5, 6, 4, 6, 5, 6, 4, 5)[: 2 * every + 1], rng)
    parts = lambda _: ("model", "optimizer", "loss_sum", batches, every, "disk", "comm")  # noqa: E731
    run = job.run(student, "saved", parts)
    right = [mean_of(chosen) for chosen in batches]
    job.each_once(run, batches, "step", "Each rank takes chosen[comm.rank :: comm.size].")
    job.agrees(run, right, {})
    logs = SimpleNamespace(results=[log for *_, log in run.results])
    works(run, [float(sum(op == "write" for op, *_ in log)) for log in logs.results], job.setting)
    events = sorted(((end, op) for log in logs.results for op, *_, end in log), key=lambda event: event[0])
    begins = [i for i, (_, op) in enumerate(events) if op == "write"]
    checks.that(
        len(begins) == 2,
        f"{job.setting}: the ranks write {len(begins)} files; one rank writes one file after steps {every} and "
        f"{2 * every}.",
    )
    alone = Job(1, 16, f"saved, p = 1, {states}", rng)
    run_alone = alone.run(student, "saved", parts)
    alone.agrees(run_alone, right, {})
    written = sum(op == "write" for *_, log in run_alone.results for op, *_ in log)
    checks.that(written == 2, f"{alone.setting}: the rank writes {written} files; it writes one for each state.")
    saved = [events[begins[1] - 1][0], events[-1][0]]  # when each state was complete
    drawn = one_of([m for m in moments(logs) if m >= saved[0]], rng)  # other numbers are on the disk then, too
    momenta = [
        momentum_of(job.trained(right[: step - 1]), job.trained(right[:step]), LR) for step in (every, 2 * every)
    ]
    for moment in (-1.0, *moments(logs)):
        job.setting = "saved, p = 2, started again after a kill " + (
            "before the first write" if moment < 0 else f"{moment:g} s after the start (a write takes 1 s)"
        )
        complete = every * sum(end <= moment for end in saved)
        files = after(logs, {}, moment)
        ask = lambda files=files, done=complete: resumes(job, student, parts, files, batches, done)  # noqa: E731
        still = lambda files: job.agrees(job.run(student, "saved", parts, files), right, {})  # noqa: E731
        comes_from_files(files, rng, ask, still, job.setting, momenta) if moment == drawn else ask()


def resumes(job: Job, student, parts, files: dict, batches: list[torch.Tensor], complete: int) -> None:
    """Started again on this disk, the script does the steps after the last complete state, with the right weights."""
    try:
        run = job.run(student, "saved", parts, files)
    except StudentError as error:
        if "half a file" not in error.text:
            raise
        raise checks.CheckFailure(
            f"{job.setting}: there is half a file on the disk, and the script cannot start: {error.text}",
            mistake="The new state is written over the old one. A kill in the middle of the write loses both: write "
            "another file, and rename it when it is complete.",
        ) from None
    begin = len(batches) - len(run.results[0][2])
    checks.that(
        begin >= complete,
        f"{job.setting}: the script begins at step {begin}; the state of step {complete} was complete.",
    )
    job.each_once(run, batches[begin:], "step", "Each rank takes chosen[comm.rank :: comm.size].")
    job.agrees(run, [mean_of(chosen) for chosen in batches], {})


@exercise.check(points=3, seconds=SECONDS)
def every_rank_takes_part(student, rng):
    "logged: rank 0 logs the mean losses, all ranks help to add them up, and the training is that of one process."
    for p, every in ((3, 2), (2, 3), (1, 1)):
        job = Job(p, 16, f"logged, p = {p}, every {every} of 5 steps", rng)
        batches = batches_of(16, (6, 6, 5, 4, 6), rng)
        parts = lambda _, b=batches, e=every: ("model", "optimizer", "loss_sum", b, e, "log", "comm")  # noqa: E731
        run = job.run(student, "logged", parts)
        steps = range(0, len(batches), every)
        job.each_once(run, batches, "step", "Each rank takes chosen[comm.rank :: comm.size].")
        right = [mean_of(chosen) for chosen in batches]
        job.agrees(run, right, {}, numbers=len(steps))
        for rank, (*_, log, _) in enumerate(run.results):
            checks.equal(
                [step for step, _ in log],
                list(steps) if rank == 0 else [],
                name=f"{job.setting}: the list of steps that rank {rank} logs",
            )
        for step, loss in run.results[0][3]:
            chosen, model = batches[step], network("plain", job.weights)
            for param, weight in zip(model.parameters(), job.trained(right[:step]), strict=True):
                param.data.copy_(weight)
            losses = cross_entropy(model(job.x[chosen]), job.y[chosen], reduction="none").detach()
            told = {"That is rank 0's part: sum the parts of all ranks.": losses[0::p].sum().item() / len(chosen)}
            checks.close(
                loss,
                losses.mean().item(),
                name=f"{job.setting}: the loss of step {step}",
                why="The mean over the step's samples, before its update.",
                mistakes=told if p > 1 else {},
                rtol=RTOL,
            )
