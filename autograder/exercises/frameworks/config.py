"""DeepSpeed's configuration and Ray's loop, by what they say. Oracle: a strict reader; one process.

DeepSpeed does not run here: its dict is read as its documentation has it. Ray's loop runs on simulated ranks, with a
stand-in for `ray.train` and torch's own DDP.
"""

import difflib
import re
from copy import deepcopy
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.drawing import whole_number
from autograder.exercises.frameworks.serial import MOMENTUM, RTOL, network, samples, weights_agree, weights_of
from autograder.sessions.errors import StudentError

exercise = Exercise("config", points=10, minutes=20, extra=True, functions=("zero_config", "loop_per_worker"))

# Names and types after DeepSpeed's "Configuration JSON" (deepspeed.ai/docs/config-json), those that the lab mentions.
SWITCH = {"enabled": bool}
KNOWN: dict = {
    "train_batch_size": int,
    "train_micro_batch_size_per_gpu": int,
    "gradient_accumulation_steps": int,
    "gradient_clipping": float,
    "steps_per_print": int,
    "bf16": SWITCH,
    "fp16": {"enabled": bool, "loss_scale": float, "initial_scale_power": int},
    "optimizer": {"type": str, "params": dict},
    "zero_optimization": {
        "stage": int,
        "overlap_comm": bool,
        "contiguous_gradients": bool,
        "reduce_bucket_size": int,
        "allgather_bucket_size": int,
        "offload_optimizer": {"device": str, "pin_memory": bool},
        "offload_param": {"device": str, "pin_memory": bool},
    },
}


def read_strictly(config, known: dict = KNOWN, path: str = "config") -> None:
    """Every name is one of the exercise's, every value of its type; JSON has no others."""
    checks.that(type(config) is dict, f"{path} is {show.an(show.type_name(config))}, expected a dict.")
    for name, value in config.items():
        checks.that(
            type(name) is str and name in known,
            f"{path} has {show.show(name)}; the names of this exercise are {', '.join(known)}.{_nearest(name, known)}",
            why="DeepSpeed has more names; a misspelt one is ignored, and the training runs with a default.",
        )
        kind = known[name]
        if type(kind) is dict:
            read_strictly(value, kind, f"{path}[{name!r}]")
        else:
            right = type(value) in ((int, float) if kind is float else (kind,))
            checks.that(
                right,
                f"{path}[{name!r}] is {show.show(value)}, {show.an(show.type_name(value))}; expected "
                f"{show.an(kind.__name__)}.",
            )


def _nearest(name, known: dict) -> str:
    near = difflib.get_close_matches(name, known, n=1) if type(name) is str else []
    return f" Did you mean {near[0]!r}?" if near else ""


def is_said(config: dict, *path: str):
    """The value at a path; CheckFailure where it is not there."""
    for i, name in enumerate(path):
        checks.that(name in config, f"config{''.join(f'[{p!r}]' for p in path[:i])} says nothing of {name!r}.")
        config = config[name]
    return config


SETTINGS = ((512, 4, 16), (64, 8, 8), (24, 1, 2), (7, 7, 1))  # batch, micro, world


@exercise.check(points=3)
def sizes_agree(student, rng):
    "zero_config: batch = micro-batch × accumulation × processes, with the names that DeepSpeed knows."
    a, b, c = (whole_number(rng, 2, 9) for _ in range(3))
    for batch, micro, world in (*SETTINGS, (a * b * c, a, b)):
        config = student.zero_config(batch, micro, world, 2)
        read_strictly(config)
        has_sizes(config, batch, micro, world, stage=2)


def has_sizes(config, batch: int, micro: int, world: int, stage: int) -> None:
    call = f"zero_config({batch}, {micro}, {world}, stage={stage})"
    right = {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": batch // (micro * world),
    }
    mistakes = {
        "train_batch_size": {"The batch is the batch of all processes together.": batch // world},
        "train_micro_batch_size_per_gpu": {"That is a process's share of the batch, not its micro-batch.":
            batch // world},
        "gradient_accumulation_steps": {
            "The processes share the batch: divide by their number, too.": batch // micro,
            "A step of all processes takes micro × world samples.": batch // world,
        },
    }  # fmt: skip
    for name, value in right.items():
        said = {s: v for s, v in mistakes[name].items() if v != value}
        checks.equal(is_said(config, name), value, name=f"{call}: {name}", mistakes=said)


@exercise.check(points=1, needs="sizes_agree")
def stage_and_precision(student, rng):
    "zero_config: the stage of ZeRO; bfloat16, which needs no loss scale; a clipped gradient; Adam with its rate."
    a, b, c = (whole_number(rng, 2, 9) for _ in range(3))
    for stage in range(4):
        lr = whole_number(rng, 2, 9) / 10_000
        for batch, micro, world in ((64, 2, 4), *SETTINGS, (a * b * c, a, b)):
            config = student.zero_config(batch, micro, world, stage, lr)
            has_the_rest(config, stage, lr)
            has_sizes(config, batch, micro, world, stage)
    for batch, micro, world in (*SETTINGS, (a * b * c, a, b)):
        has_the_rest(student.zero_config(batch, micro, world, 2), 2, 1e-3)


def has_the_rest(config, stage: int, lr: float) -> None:
    """All but the sizes."""
    read_strictly(config)
    checks.equal(is_said(config, "zero_optimization", "stage"), stage, name=f"stage={stage}: the stage")
    checks.equal(is_said(config, "bf16", "enabled"), True, name=f"stage={stage}: bf16")
    checks.that(not config.get("fp16", {}).get("enabled", False), "bf16 and fp16 are both switched on: choose bf16.")
    checks.close(is_said(config, "optimizer", "params").get("lr", 0.0), lr, name="the optimizer's lr")
    kind = is_said(config, "optimizer", "type")
    checks.that(
        kind == "Adam",
        f"the optimizer's type is {show.show(kind)}, expected 'Adam'"
        + (": AdamW decays the weights, too." if kind == "AdamW" else "."),
    )
    checks.close(is_said(config, "gradient_clipping"), 1.0, name="gradient_clipping")


@exercise.check(points=1, needs="sizes_agree")
def what_does_not_divide(student, rng):
    "zero_config: a batch that micro × world does not divide raises ValueError, and names the numbers."
    a, b, c = (whole_number(rng, 2, 9) for _ in range(3))
    for batch, micro, world in ((100, 8, 4), (8, 8, 2), (a * b * c + whole_number(rng, 1, a * b - 1), a, b)):
        call = f"zero_config({batch}, {micro}, {world}, stage=1)"
        try:
            found = student.zero_config(batch, micro, world, 1)
        except StudentError as error:
            if not error.is_a(ValueError):
                raise
            said = error.text
            named = {int(number) for number in re.findall(r"[0-9]+", said)}
            checks.that(batch in named, f"{call} raises ValueError({show.show(said)}); let it name the batch.")
            checks.that(
                {micro, world} <= named or micro * world in named,
                f"{call} raises ValueError({show.show(said)}); let it also name what does not divide the batch, "
                f"{micro} and {world}: who reads it should see which numbers to change.",
            )
        else:
            checks.fail(
                f"{call} returns {show.show(found, 80)}. {micro} × {world} does not divide {batch}: samples would be "
                "lost, or DeepSpeed stops when the training has been given its machines. Raise ValueError."
            )


class Loop:
    """A worker's loop on p simulated ranks, over some batches."""

    def __init__(self, p: int, rng, sizes: tuple[int, ...] = (6, 7, 6, 2)):
        self.p, self.lr, self.weights = p, whole_number(rng, 4, 8) / 64, weights_of("plain", rng)
        self.batches = [samples(size, rng) for size in sizes]
        self.setting = f"p = {p}"
        self.seen = [self.batches] * p

    def hide_others_samples(self, rng) -> None:
        """Give each rank other numbers instead of the samples that are not its own."""
        self.setting += ", other numbers in samples that are not the rank's own"
        self.seen = [deepcopy(self.batches) for _ in range(self.p)]
        for rank, batches in enumerate(self.seen):
            for x, _ in batches:
                others = torch.arange(len(x)) % self.p != rank
                x[others] = torch.randn(x.shape, generator=rng).double()[others]

    def run(self, student):
        def arguments(rank):
            return deepcopy(("plain", self.weights, self.seen[rank], self.lr))

        return student.ranks("loop_per_worker", self.p, arguments, harness="ray_loop")

    def serial(self, factor: float = 1.0, everything: bool = False):
        """Losses and weights of one process; the options are mistakes."""
        model = network("plain", self.weights)
        optimizer, losses = torch.optim.SGD(model.parameters(), self.lr, momentum=MOMENTUM), []
        for i, (x, y) in enumerate(self.batches):
            xs = [batches[i][0] for batches in self.seen] if everything else [x]
            loss = torch.stack([cross_entropy(model(each), y) for each in xs]).mean()
            optimizer.zero_grad()
            (factor * loss).backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [param.detach() for param in model.parameters()]


@exercise.check(points=3, seconds=SECONDS)
def ray_as_one_process(student, rng):
    "loop_per_worker: a prepared model, each worker its share of a batch, equal, unequal or none: the weights of one."
    for p in (2, 1, 3):
        loop_is_right(student, Loop(p, rng))
    apart = Loop(2, rng)
    apart.hide_others_samples(rng)
    loop_is_right(student, apart)
    carried(student, rng, lambda: loop_is_right(student, Loop(2, rng)), "p = 2")


def loop_is_right(student, loop: Loop) -> None:
    """Every rank has prepared one model, which has the weights of one process."""
    for rank, (_, models) in enumerate(loop.run(student).results):
        checks.that(
            len(models) == 1,
            f"{loop.setting}: rank {rank} prepares {len(models)} models; train.torch.prepare_model(model) once: it "
            "wraps the model in DDP, which averages the gradients.",
        )
        mistakes = {
            "Gradients are p times too small: DDP divides by p.": lambda loop=loop: loop.serial(1 / loop.p)[1],
            "Gradients are p times too large: DDP takes the mean. Is the rate scaled, too?": partial(
                lambda loop: loop.serial(float(loop.p))[1], loop
            ),
        }
        if loop.seen[0] is not loop.batches:
            sentence = "Every worker trains on all samples of a batch: worker r takes x[r::world], and no others."
            mistakes[sentence] = lambda loop=loop: loop.serial(everything=True)[1]
        name = f"{loop.setting}, rank {rank}"
        weights_agree(models[0], loop.serial()[1], name, mistakes if loop.p > 1 else None)


@exercise.check(points=2, seconds=SECONDS, needs="ray_as_one_process")
def all_ranks_report(student, rng):
    "loop_per_worker: after each step every rank reports the mean loss of the whole batch."
    for p in (2, 3):
        loop = Loop(p, rng)
        losses = loop.serial()[0]
        for rank, (reports, _) in enumerate(loop.run(student).results):
            checks.equal(len(reports), len(losses), name=f"{loop.setting}: reports of rank {rank}")
            for step, (report, right) in enumerate(zip(reports, losses, strict=True)):
                checks.that(
                    "loss" in report, f"{loop.setting}: rank {rank} reports {show.show(report)} without 'loss'."
                )
                checks.close(
                    report["loss"],
                    right,
                    name=f"{loop.setting}: the loss of step {step} on rank {rank}",
                    why="Of the whole batch: a rank's own share says little, and Ray keeps rank 0's report alone.",
                    rtol=RTOL,
                )
