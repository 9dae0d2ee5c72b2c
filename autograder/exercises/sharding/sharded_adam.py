"""An optimizer whose work the ranks share. Oracle: torch's AdamW on one machine, the trace, the memory meter."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import SHARDING, UPDATES
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "sharded_adam",
    points=20,
    minutes=25,
    functions=("ShardedAdam",),
    forbid=(*SHARDING, *UPDATES),
    instead="Write the sharded optimizer yourself, with reduce_scatter, adamw and all_gather.",
    meanings={"for `end` but got dtype": "Momentum, variance, gradient and weights need one dtype: the weights'."},
)

SHAPES = ((3, 4), (5,), (2, 2))  # 21 elements, which 2 and 4 do not divide
LARGE = ((4, ((32, 32), (64,))), (5, ((30, 31),)))  # ranks, and shapes whose states and messages are measured
NUMBER = 8  # bytes


class Training:
    """Weights, and each rank's gradients for some steps."""

    def __init__(self, p: int, rng, shapes=SHAPES, steps: int = 2):
        self.p, self.lr, self.rtol = p, whole_number(rng, 2, 6) / 64, 1e-9
        self.weights = [torch.randn(shape, generator=rng).double() for shape in shapes]
        self.gradients = [
            [[torch.randn(shape, generator=rng).double() for shape in shapes] for _ in range(steps)] for _ in range(p)
        ]
        self.numel = sum(w.numel() for w in self.weights)
        self.setting = f"p = {p}, {self.numel} elements"

    def run(self, student):
        def arguments(rank):
            steps = [[g.clone() for g in step] for step in self.gradients[rank]]
            return [w.clone() for w in self.weights], steps, self.lr

        return student.ranks("ShardedAdam", self.p, arguments, harness="optimizing")

    def in_float32(self) -> "Training":
        """The same in float32, with gradients in eighths, whose sums are exact."""
        self.weights = [w.float() for w in self.weights]
        self.gradients = [[[(8 * g).round().float() / 8 for g in step] for step in mine] for mine in self.gradients]
        self.setting, self.rtol = f"{self.setting} in float32", 1e-4
        return self

    def serial(self, *mistakes, **more) -> list[torch.Tensor]:
        """The weights after all steps, or what mistakes make of them."""
        return [param.detach() for param in self.whole(*mistakes, **more).param_groups[0]["params"]]

    def states(self, rank: int) -> dict[str, torch.Tensor]:
        """Momentum and variance of the rank's share after all steps."""
        states = self.whole().state.values()
        names = {"m": "exp_avg", "v": "exp_avg_sq"}
        return {
            name: torch.cat([state[key].flatten() for state in states]).tensor_split(self.p)[rank]
            for name, key in names.items()
        }

    def whole(self, factor: float = 1.0, ranks=None, decay: float = 0.01, forgets: bool = False, before: int = 0):
        """torch's AdamW after all steps on factor times the mean gradient; variants are mistakes."""
        ranks = range(self.p) if ranks is None else ranks
        params = [nn.Parameter(w.clone()) for w in self.weights]
        optimizer = torch.optim.AdamW(params, self.lr, weight_decay=decay, foreach=False)
        for param in params if before else ():  # steps that t counts before the first
            zeros = {name: torch.zeros_like(param) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[param] = {"step": torch.tensor(float(before)), **zeros}
        for step in range(len(self.gradients[0])):
            for i, param in enumerate(params):
                param.grad = factor * sum(self.gradients[r][step][i] for r in ranks) / len(ranks)
            if forgets:
                for state in optimizer.state.values():
                    state["step"].zero_()
            optimizer.step()
        return optimizer

    def not_counted(self) -> list[torch.Tensor]:
        """The weights after a step with t = 0."""
        return [torch.full_like(w, torch.nan) for w in self.weights]

    def not_gathered(self, rank: int) -> list[torch.Tensor]:
        """The weights where the rank's share alone is new."""
        flat, new = (torch.cat([w.flatten() for w in weights]) for weights in (self.weights, self.serial()))
        flat.tensor_split(self.p)[rank].copy_(new.tensor_split(self.p)[rank])
        parts = flat.split([w.numel() for w in self.weights])
        return [part.view_as(w) for part, w in zip(parts, self.weights, strict=True)]

    def agrees(self, student):
        run, right = self.run(student), self.serial()
        for rank, (weights, *_) in enumerate(run.results):
            variants: dict[str, Callable[[], list[torch.Tensor]]] = {
                "This uses only the rank's own gradients: take the mean over the ranks.": partial(
                    self.serial, ranks=[rank]
                ),
                "This is the sum over the ranks: take the mean, once.": partial(self.serial, float(self.p)),
                "The mean is taken twice: 1/p once is enough.": partial(self.serial, 1 / self.p),
                "t does not count the steps: the first one is t = 1, the next one t = 2.": partial(
                    self.serial, forgets=True
                ),
                "t is one too large: t is 0 until the first step, which has t = 1.": partial(self.serial, before=1),
                "With t = 0 the correction divides by 1 - 0.9**0 = 0, which gives nan: count t up before adamw. The "
                "first step has t = 1.": self.not_counted,
                "You apply weight decay twice.": partial(self.serial, decay=0.02),
                "Only the rank's own share is new: gather the other shares.": partial(self.not_gathered, rank),
            }
            for i, expected in enumerate(right):
                checks.close(
                    weights[i],
                    expected,
                    name=f"{self.setting}: weight {i} on rank {rank}, after {len(self.gradients[0])} steps",
                    why="torch's AdamW on one machine gives this, with the mean of all ranks' gradients.",
                    mistakes={sentence: lambda of=of, i=i: of()[i] for sentence, of in variants.items()},
                    rtol=self.rtol,
                    atol=self.rtol / 10,
                )
        return run


@exercise.check(points=6, seconds=SECONDS)
def as_one_machine(student, rng):
    "After each step all ranks have the weights of AdamW on the mean gradient, for p = 1 to 4, in float32 too."
    for p in (2, 1, 3, 4):
        Training(p, rng).agrees(student)
    Training(2, rng, steps=5).agrees(student)
    Training(2, rng).in_float32().agrees(student)
    carried(student, rng, lambda: Training(2, rng, steps=1).agrees(student), "p = 2")


@exercise.check(points=2, needs="as_one_machine", seconds=SECONDS)
def a_rank_without_a_share(student, rng):
    "Three elements over five ranks: two ranks own nothing, but still have all weights."
    for training in (Training(5, rng, ((3,),)), Training(4, rng, ((1,), (1, 1)))):
        for rank, (*_, states) in enumerate(training.agrees(student).results):
            owns = len(torch.empty(training.numel).tensor_split(training.p)[rank])
            for name, x in zip("mv", states, strict=False):
                checks.that(
                    type(x) is not torch.Tensor or x.numel() == owns,
                    f"{training.setting}: rank {rank} owns {owns} elements, and its {name} has "
                    f"{show.show(x.numel() if type(x) is torch.Tensor else None)}. A rank updates only its share.",
                )


@exercise.check(points=5, needs="as_one_machine", seconds=SECONDS)
def no_more_bytes(student, rng):
    "Each rank sends 2 (p - 1)/p of the weights' bytes in a step, as an all-reduce would; all are waited for."
    small = [(p, ((p, 4), (3 * p,)), 1) for p in (2, 4, 5)]
    for p, shapes, steps in (*small, *((p, shapes, 2) for p, shapes in LARGE)):
        training = Training(p, rng, shapes, steps)
        run = training.agrees(student)
        waited_for(run, training.setting)
        whole = [e.op for e in run.trace if e.op in ("all_reduce", "broadcast")]
        once = (p - 1) * training.numel * NUMBER // p
        for rank in range(p):
            sent = sum(event.nbytes for event in sends(run) if event.rank == rank) / steps
            mistake = (
                f"comm.{whole[0]} gives every rank the whole sum. A rank needs the sum of its own share: "
                "reduce_scatter, and all_gather for the new weights."
                if whole
                else "You do an all-reduce and a gather: the sum of the rank's own share is enough."
                if sent >= 3 * once
                else ""
            )
            if whole or sent != 2 * once:
                raise checks.CheckFailure(
                    f"{training.setting}: rank {rank} sends {sent:g} bytes in a step"
                    + (f", and calls comm.{whole[0]} {len(whole) // p // steps} times." if whole else "."),
                    got=f"{sent:g} bytes" + (f" and comm.{whole[0]}" if whole else ""),
                    expected=f"{2 * once} bytes: {once} to sum the shares, {once} to gather the new weights",
                    mistake=mistake,
                )


@exercise.check(points=5, needs="as_one_machine", seconds=SECONDS)
def states_of_the_share_alone(student, rng):
    "A rank keeps only two numbers for each element of its share: m, the momentum, and v, the variance."
    for p, shapes in LARGE:
        training = Training(p, rng, shapes)
        run = training.agrees(student)
        for rank, (_, kept, left, states) in enumerate(run.results):
            owns = len(torch.empty(training.numel).tensor_split(p)[rank])
            right, everything = 2 * owns * NUMBER, 2 * training.numel * NUMBER
            checks.that(
                type(kept) is not int or kept >= right,
                f"{training.setting}: between two steps rank {rank} keeps {show.show(kept)} bytes next to the weights; "
                f"momentum and variance of its {owns} elements have {right}. Keep them in torch's tensors, whose "
                "memory is measured.",
            )
            if type(kept) is not int or kept > right + 256:
                mistake = (
                    f"{left} parameters still have a gradient, which counts: free it (param.grad = None); zeros in it "
                    "take as much memory."
                    if type(left) is int and left > 0
                    else "A view keeps the whole vector in memory: free it, or copy your share (.clone())."
                    if training.numel * NUMBER <= kept < everything
                    else ""
                )
                whole = (
                    " That is as much as without sharding: keep the share, in memory of its own."
                    if kept >= everything
                    else ""
                )
                raise checks.CheckFailure(
                    f"{training.setting}: between two steps rank {rank} keeps {kept} bytes next to the weights; "
                    f"momentum and variance of its {owns} elements have {right}.{whole}",
                    got=f"{kept} bytes",
                    expected=f"{right} bytes",
                    mistake=mistake,
                )
            has_states(training, rank, *states)


def has_states(training: Training, rank: int, m, v, t) -> None:
    """A checkpoint finds the rank's share of both states and the number of steps under their names."""
    where, steps = f"{training.setting}, rank {rank}", len(training.gradients[0])
    for (name, right), got in zip(training.states(rank).items(), (m, v), strict=True):
        why = "A checkpoint saves this rank's momentum m, its variance v and the number t of steps."
        checks.that(got is not None, f"{where}: the optimizer has no attribute {name}.", why=why)
        checks.close(got, right, name=f"{where}: {name} after {steps} steps", why=why, rtol=1e-9, atol=1e-12)
    checks.equal(t, steps, name=f"{where}: t after {steps} steps", why="t is the number of steps so far.")


@exercise.check(points=2, needs="as_one_machine", seconds=SECONDS)
def gradients_are_gone(student, rng):
    "After a step no parameter has a gradient."
    for p in (4, 1):
        training = Training(p, rng, steps=1)
        for rank, (*_, left, _) in enumerate(training.agrees(student).results):
            checks.that(
                left == 0,
                f"{training.setting}: after a step {show.show(left)} of {len(training.weights)} parameters have a "
                f"gradient on rank {rank}. No rank needs them after the sum, and the next backward pass would add to "
                "them: clear the gradient.",
            )
