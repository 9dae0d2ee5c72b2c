"""A file for torchrun, with torch's own DDP. Oracle: one process; messages of the simulated machine."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.collectives import carried_calls
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.drawing import whole_number
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

exercise = Exercise(
    "torchrun",
    points=15,
    minutes=20,
    functions=("place", "train"),
    meanings={
        "is not a leaf": "Wrap the model once, in DistributedDataParallel.",
        "key 'LOCAL_WORLD_SIZE'": "place needs only RANK, WORLD_SIZE and LOCAL_RANK.",
    },
)


NOT_WRAPPED = (
    "Only the rank's own gradients count: wrap the model in DistributedDataParallel, and train what it returns."
)
ALONE = "Each rank trains by itself: wrap the model in DistributedDataParallel, and train what it returns."
SUM_OF_MEANS = (
    "That is p times the loss: a sum of the ranks' means. Divide each rank's sum by the number of samples in the whole "
    "batch, and then add up."
)


def order(n: int, epoch: int) -> torch.Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))


def env_of(rank: int, p: int, each: int) -> dict[str, str]:
    """What torchrun tells the process, on machines of `each` processes."""
    return {"RANK": str(rank), "WORLD_SIZE": str(p), "LOCAL_RANK": str(rank % each), "LOCAL_WORLD_SIZE": str(each)}


@exercise.check(points=3)
def where_am_i(student, rng):
    "place: the rank and the number of processes on all machines, and the GPU of this machine."
    drawn = whole_number(rng, 3, 5)
    for p, each in ((8, 4), (4, 4), (6, 2), (1, 1), (2 * drawn, drawn)):
        for rank in range(p):
            env = env_of(rank, p, each)
            got = student.ranks("place", 1, lambda _, env=env: (env,), harness="with_gpus").results[0]
            got = tuple(got) if type(got) is list else got
            checks.equal(
                got,
                (rank, p, f"cuda:{rank % each}"),
                name=f"place({env})",
                mistakes={
                    "LOCAL_RANK counts on one machine, so two processes would have the same share of the data. The "
                    "rank is RANK.": (rank % each, p, f"cuda:{rank % each}"),
                    "Each machine has GPUs 0, 1, ...: choose the device by LOCAL_RANK.": (rank, p, f"cuda:{rank}"),
                    "The world is all machines' processes: WORLD_SIZE.": (rank, each, f"cuda:{rank % each}"),
                    "The values of env are strings: int(env[...]).": (str(rank), str(p), f"cuda:{rank % each}"),
                }
                if p > each > 1
                else None,
            )


class Training:
    """n samples in batches, for some epochs."""

    def __init__(self, p: int, n: int, batch: int, epochs: int, rng, each: int = 2):
        self.p, self.n, self.batch, self.epochs, self.each = p, n, batch, epochs, each
        self.weights = [weights_of("plain", rng) for _ in range(p)]
        self.x, self.y = samples(n, rng)
        self.lr = whole_number(rng, 4, 8) / 64
        self.setting = f"p = {p}, {n} samples in batches of {batch}, {epochs} epoch{'s' * (epochs > 1)}"
        self.xs = [self.x] * p

    def hide_others_samples(self, rng) -> None:
        """Give each rank, for one epoch, other numbers instead of the samples that are not its own."""
        self.setting += ", other numbers in samples that are not the rank's own"
        for rank in range(self.p):
            self.xs[rank] = torch.randn(self.n, 4, generator=rng).double()
            for chosen in order(self.n, 0).split(self.batch):
                self.xs[rank][chosen[rank :: self.p]] = self.x[chosen[rank :: self.p]]

    def run(self, student):
        def arguments(rank):
            env = env_of(rank, self.p, self.each)
            return deepcopy(
                ("plain", self.weights[rank], (env, None, self.xs[rank], self.y, self.epochs, self.batch, self.lr))
            )

        return student.ranks("train", self.p, arguments, harness="in_group")

    def of_all(self):
        """What every process gets that trains on all samples, where each has other numbers in some."""
        model = network("plain", self.weights[0])
        optimizer, losses = torch.optim.SGD(model.parameters(), self.lr, momentum=MOMENTUM), []
        for epoch in range(self.epochs):
            for chosen in order(self.n, epoch).split(self.batch):
                loss = torch.stack([cross_entropy(model(x[chosen]), self.y[chosen]) for x in self.xs]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, [param.detach() for param in model.parameters()]

    def pieces(self):
        """The same where each rank takes a piece of a batch, and not every p-th sample."""
        model = network("plain", self.weights[0])
        optimizer, losses = torch.optim.SGD(model.parameters(), self.lr, momentum=MOMENTUM), []
        for epoch in range(self.epochs):
            for chosen in order(self.n, epoch).split(self.batch):
                parts = zip(self.xs, chosen.tensor_split(self.p), strict=True)
                sums = [cross_entropy(model(x[part]), self.y[part], reduction="sum") for x, part in parts]
                loss = torch.stack(sums).sum() / len(chosen)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, [param.detach() for param in model.parameters()]

    def alone(self, rank: int, factor: float):
        """Weights of a process that no other one sends gradients to: it trains on its own samples."""
        model = network("plain", self.weights[rank])
        optimizer = torch.optim.SGD(model.parameters(), self.lr, momentum=MOMENTUM)
        for epoch in range(self.epochs):
            for chosen in order(self.n, epoch).split(self.batch):
                mine = chosen[rank :: self.p]
                loss = cross_entropy(model(self.xs[rank][mine]), self.y[mine], reduction="sum") / len(chosen)
                optimizer.zero_grad()
                (factor * loss).backward()
                optimizer.step()
        return [], [param.detach() for param in model.parameters()]

    def serial(
        self,
        means: bool = False,
        same_order: bool = False,
        factor: float = 1.0,
        whole: bool = False,
        keeps: bool = False,
    ):
        """Losses and weights of one process; the options are mistakes."""
        model = network("plain", self.weights[0])
        optimizer = torch.optim.SGD(model.parameters(), self.lr, momentum=MOMENTUM)
        losses = []
        for epoch in range(self.epochs):
            for chosen in order(self.n, 0 if same_order else epoch).split(self.batch):
                if whole and len(chosen) < self.batch:
                    continue
                shares = [chosen[rank :: self.p] for rank in range(self.p)] if means else [chosen]
                means_of = [cross_entropy(model(self.x[s]), self.y[s]) for s in shares if len(s)]
                loss = torch.stack(means_of).sum() / len(shares)
                if not keeps:
                    optimizer.zero_grad()
                (factor * loss).backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, [param.detach() for param in model.parameters()]

    def agrees(self, student):
        run = self.run(student)
        losses, weights = self.serial()
        variants: dict[str, Callable[[], Any]] = {
            "You use the order of epoch 0 in every epoch, as DistributedSampler does without set_epoch.": partial(
                self.serial, same_order=True
            ),
            "A mean of means: DDP takes the mean over the ranks, and a rank with few samples has the same weight as "
            "one with many. Divide sums by the number of samples in the whole batch, and multiply by p.": partial(
                self.serial, means=True
            ),
            "Gradients are p times too small: DDP divides by p, and you divided by the whole batch.": partial(
                self.serial, factor=1 / self.p
            ),
            "Gradients are p times too large: DDP takes the mean.": partial(self.serial, factor=float(self.p)),
            "You skip the last batch.": partial(self.serial, whole=True),
            "Each step adds its gradients to the earlier ones: call optimizer.zero_grad() before backward.": partial(
                self.serial, keeps=True
            ),
        }
        if any(x is not self.x for x in self.xs):
            sentence = "Every process trains on all samples of a batch: rank r takes chosen[r::p], and no others."
            variants[sentence] = self.of_all
            sentence = "Each process takes a piece of a batch: rank r takes every p-th sample, chosen[r::p]."
            variants[sentence] = self.pieces
        for rank, (returned, got, _) in enumerate(run.results):
            name = f"{self.setting}, rank {rank}"
            own = {NOT_WRAPPED: partial(self.alone, rank, float(self.p)), ALONE: partial(self.alone, rank, 1.0)}
            known = own | variants if self.p > 1 else {}
            weights_agree(got, weights, name, {s: lambda of=of: of()[1] for s, of in known.items()})
            checks.that(
                type(returned) in (list, tuple) and len(returned) == len(losses),
                f"{name}: train returns {show.show(returned, 60)}; expected a list of {len(losses)} losses.",
            )
            for step, right in enumerate(losses):
                checks.close(
                    returned[step],
                    right,
                    name=f"{name}: the loss of step {step}",
                    why="The mean over the whole batch, on every rank: each one's sum, added up over the ranks.",
                    mistakes={SUM_OF_MEANS: self.p * right} if self.p > 1 else None,
                    rtol=RTOL,
                )
        return run


@exercise.check(points=5, seconds=SECONDS, needs="where_am_i")
def as_one_process(student, rng):
    "20 steps on 1, 2, 4 processes, on machines with 2 each: losses and weights of one process, from rank 0's."
    for p, epochs in ((2, 5), (1, 2), (4, 2)):
        Training(p, 16, 4, epochs, rng).agrees(student)
    apart = Training(2, 12, 4, 1, rng)
    apart.hide_others_samples(rng)
    apart.agrees(student)
    carried(student, rng, lambda: Training(2, 8, 4, 1, rng).agrees(student), "p = 2")


@exercise.check(points=4, seconds=SECONDS, needs="as_one_process")
def an_uneven_tail(student, rng):
    "Batches that p does not divide, and a last one with fewer samples than ranks."
    for p, n, batch in ((2, 11, 4), (3, 10, 4), (4, 9, 4)):
        Training(p, n, batch, 2, rng).agrees(student)


@exercise.check(points=3, seconds=SECONDS, needs="as_one_process")
def one_bucket(student, rng):
    "Gradients are sent once in each step, as DDP sends them, and otherwise only the loss."
    for p in (2, 3):
        each, batches = whole_number(rng, 1, 3), whole_number(rng, 2, 4)
        training = Training(p, each * batches * p, each * p, 2, rng)
        run = training.agrees(student)
        steps = 2 * batches
        gradients = numel("plain") * NUMBER
        for rank, (_, _, calls) in enumerate(run.results):
            carried_calls(run, rank, calls, training.setting)
            reduced = [nbytes for name, nbytes in calls if name == "all_reduce"]
            checks.that(
                steps * gradients <= sum(reduced) <= steps * (gradients + 2 * NUMBER),
                f"{training.setting}: in {steps} steps rank {rank} makes {len(reduced)} all-reduces of {sum(reduced)} "
                f"bytes. The gradients have {gradients}, once in each step, and the loss {NUMBER}.",
                got=f"{sum(reduced)} bytes in all",
                expected=f"{steps * (gradients + NUMBER)} bytes in all",
            )
            others = sum(nbytes for name, nbytes in calls if name != "all_reduce")
            checks.that(
                others <= 2 * gradients,
                f"{training.setting}: besides the all-reduces, rank {rank}'s collectives have {others} bytes. The "
                f"weights have {gradients}, and travel once, when DDP is made: a step sends gradients and the loss.",
                got=f"{others} bytes besides all-reduces",
                expected=f"at most {2 * gradients}: the weights once, and DDP's notes",
            )
