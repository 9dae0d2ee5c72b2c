"""Horovod's interface on our communicator. Oracle: one machine's training, the trace, virtual seconds."""

from copy import deepcopy
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, carrying, one_of
from autograder.exercises.drawing import whole_number
from autograder.exercises.frameworks.serial import MOMENTUM, NUMBER, network, samples, weights_agree, weights_of
from autograder.exercises.ready_made import RANKS
from hpcdl.nn.awkward import MODELS

exercise = Exercise(
    "horovod",
    points=15,
    minutes=30,
    extra=True,
    functions=("allreduce", "broadcast_parameters", "broadcast_optimizer_state", "DistributedOptimizer"),
    forbid=(*RANKS, "hpcdl.comm.base.Communicator.all_reduce"),
    instead="Add up with ring_all_reduce, whose messages are counted; broadcast with comm.broadcast.",
)

LR = 0.1
Steps = list[list[tuple[torch.Tensor, torch.Tensor]]]  # by step and pass


@exercise.check(points=2, seconds=SECONDS)
def allreduce_averages(student, rng):
    "allreduce: a new tensor with the mean, or the sum, of all ranks' x; x is as it was."
    for p in (2, 3, 1):
        xs = [torch.randn(3, 5, generator=rng).double() for _ in range(p)]
        for average in (True, False):
            run = student.ranks("allreduce", p, lambda rank, xs=xs: (xs[rank].clone(),), {"average": average})
            total = torch.stack(xs).sum(0)
            expected, other = (total / p, total) if average else (total, total / p)
            for rank in range(p):
                checks.close(
                    run.results[rank],
                    expected,
                    name=f"p = {p}, average={average}: the result on rank {rank}",
                    mistakes={} if p == 1 else {
                        "Mean and sum are exchanged, or `average` is not looked at.": other,
                        "This is the rank's own x: nothing was added.": xs[rank],
                        "Divided by p twice.": expected / p,
                    },
                    rtol=1e-12,
                )  # fmt: skip
                checks.unchanged(run.arguments[rank][0], xs[rank], name="x")


STATES = {  # what torch's optimizers keep of each parameter
    "SGD": ("momentum_buffer",),
    "Adam": ("step", "exp_avg", "exp_avg_sq"),
    "Adagrad": ("step", "sum"),
    "Adamax": ("step", "exp_avg", "exp_inf"),
    "Adadelta": ("step", "square_avg", "acc_delta"),
}
OTHERS = ("Adagrad", "Adamax", "Adadelta")


@exercise.check(points=2, seconds=SECONDS)
def all_begin_alike(student, rng):
    "broadcast_parameters, broadcast_optimizer_state: rank root_rank's weights and momenta on every rank, in place."
    for p, root in ((3, 0), (3, 2), (1, 0)):
        owned = [[torch.randn(3, 2, generator=rng).double(), torch.randn(4, generator=rng)] for _ in range(p)]
        arguments = lambda rank, owned=owned, root=root: ([x.clone() for x in owned[rank]], root)  # noqa: E731
        run = student.ranks("broadcast_parameters", p, arguments, harness="broadcasting")
        for rank, (params, memory) in enumerate(run.results):
            for i in range(2):
                right, name = owned[root][i], f"p = {p}, root_rank = {root}: tensor {i} on rank {rank}"
                mistakes = {
                    "This is rank 0's: the root is `root_rank`.": owned[0][i],
                    "This rank still has its own: broadcast, in place.": owned[rank][i],
                }
                checks.close(params[i], right, name=name, mistakes=mistakes, rtol=0.0, atol=0.0)
                checks.that(
                    checks.same(memory[i], right),
                    f"{name}: the memory that it had still holds the old numbers. `param.data = ...` hangs another "
                    "memory under the name, and code that uses the old one sees nothing of it: broadcast into the "
                    "tensor.",
                )
        for kind in ("SGD", "Adam", *[one_of(OTHERS, rng)] * (root > 0)):
            same_state(student, p, root, kind, STATES[kind], rng)


def same_state(student, p: int, root: int, kind: str, names: tuple[str, ...], rng) -> None:
    """Every rank's optimizer of that kind has what the root's keeps, of each parameter."""
    weights = [torch.zeros(3, 2), torch.zeros(4)]
    states = [
        [{n: torch.rand(() if n == "step" else w.shape, generator=rng) for n in names} for w in weights]
        for _ in range(p)
    ]
    own = lambda rank: deepcopy((kind, weights, states[rank], root))  # noqa: E731
    for rank, found in enumerate(student.ranks("broadcast_optimizer_state", p, own, harness="momenta").results):
        for i, name in ((i, name) for i in range(2) for name in names):
            mistakes = {
                "This rank still has its own. After a restart all ranks would take different steps. Every tensor of "
                "every parameter's state travels, in all groups.": states[rank][i][name],
                "This is rank 0's: the root is `root_rank`.": states[0][i][name],
            }
            what = f"p = {p}, root_rank = {root}: {kind}'s {name} of parameter {i} on rank {rank}"
            right = states[root][i][name]
            mistakes = {s: x for s, x in mistakes.items() if not torch.equal(x, right)}
            checks.that(name in found[i], f"{what} is gone.")
            checks.close(found[i][name], right, name=what, mistakes=mistakes, rtol=0.0, atol=0.0)


class Training:
    """Each rank's batches, for some steps of some passes."""

    def __init__(self, p: int, rng, passes: int = 1, steps: int = 3, name: str = "plain"):
        self.p, self.passes, self.name = p, passes, name
        self.weights = weights_of(name, rng)
        self.batches: list[Steps] = [[[samples(3, rng) for _ in range(passes)] for _ in range(steps)] for _ in range(p)]
        self.setting = f"p = {p}, {steps} step{'s' * (steps > 1)} of {passes} pass{'es' * (passes > 1)}"

    def run(self, student, seconds: float = 0.0, **machine):
        def arguments(rank):
            return self.name, [w.clone() for w in self.weights], self.batches[rank], LR, seconds

        return student.ranks("DistributedOptimizer", self.p, arguments, harness="horovod", **machine)

    def serial(self, factor: float = 1.0, ranks=None, last: bool = False, keeps: bool = False) -> list[torch.Tensor]:
        """The weights after all steps on the mean of all passes of all ranks; the options are mistakes."""
        model, ranks = network(self.name, self.weights), range(self.p) if ranks is None else ranks
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM)
        for step in range(len(self.batches[0])):
            if not keeps:
                optimizer.zero_grad()
            for rank in ranks:
                for x, y in self.batches[rank][step][-1 if last else 0 :]:
                    (factor * cross_entropy(model(x), y) / self.passes / len(ranks)).backward()
            optimizer.step()
        return [param.detach() for param in model.parameters()]

    def agrees(self, student, **options):
        run = self.run(student, **options)
        for rank, weights in enumerate(run.results):
            mistakes = {
                "This is what the rank's own gradients give: nothing is averaged.": partial(self.serial, ranks=[rank]),
                "This is the sum over the ranks: Horovod averages.": partial(self.serial, float(self.p)),
                "The mean over the ranks is taken twice.": partial(self.serial, 1 / self.p),
                "Gradients of the steps before are still in it: zero_grad must reach the optimizer.": partial(
                    self.serial, keeps=True
                ),
            }
            if self.passes > 1:
                mistakes |= {
                    "Divided by backward_passes_per_step, which the loss is already.": partial(
                        self.serial, 1 / self.passes
                    ),
                    "Only the last pass counts: gradients accumulate.": partial(self.serial, last=True),
                }
            weights_agree(weights, self.serial(), f"{self.setting}, rank {rank}", mistakes if self.p > 1 else None)
        return run


@exercise.check(points=4, seconds=2 * SECONDS, needs="allreduce_averages")
def as_one_machine(student, rng):
    "DistributedOptimizer: after 20 steps every rank has the weights of one machine, for p = 1 to 4."
    for p in (2, 1, 3, 4):
        Training(p, rng).agrees(student)
    Training(2, rng, steps=20).agrees(student)
    Training(3, rng, name="tied").agrees(student)
    Training(2, rng, name="unused").agrees(student)
    carried(student, rng, lambda: Training(2, rng).agrees(student), "p = 2")


@exercise.check(points=2, seconds=SECONDS, needs="as_one_machine")
def several_passes_one_sum(student, rng):
    "backward_passes_per_step: gradients accumulate, and travel once in a step."
    for p, passes in ((2, 3), (3, 2), (4, 1)):
        training = Training(p, rng, passes, steps=2)
        run = training.agrees(student)
        travel_once(training, run, steps=2)


def travel_once(training: Training, run, steps: int) -> None:
    """All ranks together send no more bytes than their gradients once in each step."""
    p, sizes = training.p, [param.numel() for param in MODELS[training.name]().parameters()]
    once = sum(2 * (p - 1) * size * NUMBER for size in sizes) * steps
    sent = sum(event.nbytes for event in carrying(run))
    if sent > once:
        raise checks.CheckFailure(
            f"{training.setting}: all ranks together send {sent} bytes of gradients; {once} are enough.",
            got=f"{sent} bytes",
            expected=f"{once} bytes: 2 (p - 1) times {sum(sizes)} gradients of {NUMBER} bytes, {steps} "
            f"step{'s' * (steps > 1)}",
            mistake="Gradients travel after every pass. Count the passes, and add up in the last one."
            if training.passes > 1
            else "Gradients travel more than once in a step: in the hook, and again in step()?",
        )


@exercise.check(points=2, seconds=SECONDS, needs="as_one_machine")
def during_the_backward_pass(student, rng):
    "A gradient is under way as soon as it is there, while earlier layers still compute."
    for name in ("deep", "plain"):
        training = Training(whole_number(rng, 2, 3) if name == "plain" else 2, rng, steps=1, name=name)
        leaves = [layer for layer in MODELS[name]().modules() if not list(layer.children())]
        sizes = [[param.numel() for param in layer.parameters()] for layer in reversed(leaves)]
        run = training.agrees(student, seconds=1.0, beta=1e-6)
        are_under_way(training, run, sizes)
        travel_once(training, run, steps=1)  # what else is under way is no gradient


def are_under_way(training: Training, run, sizes: list[list[int]]) -> None:
    """Each rank sends gradients during the backward pass, which reaches layers with parameters of these sizes."""
    count = len(sizes)
    for rank in range(training.p):
        layers = [event for event in run.trace if event.rank == rank and event.op == "compute"]
        checks.that(
            len(layers) == count and all(abs(event.end - event.start - 1.0) < 1e-9 for event in layers),
            f"Rank {rank} works {len(layers)} times; a backward pass through {count} layers is {count} times 1 s.",
        )
        first = min((event.start for event in carrying(run) if event.rank == rank), default=float("inf"))
        checks.that(
            first < layers[-1].start,
            f"{count} layers, a second of backward pass each: rank {rank} sends its first gradient "
            + (f"at {first:.0f} s" if first < float("inf") else "never")
            + f", and the last one is there at {layers[-1].end:.0f} s. Let a hook of the parameter send it: "
            "param.register_post_accumulate_grad_hook.",
            got=f"first message at {first:.0f} s",
            expected="first message at 1 s, when the last layer's gradient is there",
        )
        mine = [event for event in carrying(run) if event.rank == rank]
        as_soon_as_it_is_there(rank, layers, mine, sizes, training.p)


def as_soon_as_it_is_there(rank: int, layers: list, mine: list, sizes: list[list[int]], p: int) -> None:
    """Before each layer's backward pass the rank has sent the gradients of all layers behind it."""
    everything = sum(event.nbytes for event in mine)
    uneven = sum(size % p > 0 for layer in sizes for size in layer)  # their chunks differ by an element
    for done in range(1, len(layers)):
        start = layers[done].start
        early = sum(event.nbytes for event in mine if event.start < start)
        least = everything * sum(map(sum, sizes[:done])) // sum(map(sum, sizes)) - uneven * 2 * (p - 1) * NUMBER
        checks.that(
            early >= least,
            f"{len(layers)} layers, a second of backward pass each: rank {rank} has sent {early} of {everything} bytes "
            f"by {start:.0f} s, when {done} of the layers have their gradients. Each gradient travels as soon as it is "
            "there.",
            got=f"{early} bytes",
            expected=f"{least} bytes or more, the gradients that are there",
        )


@exercise.check(points=3, seconds=SECONDS, needs="as_one_machine")
def zero_grad_too_late(student, rng):
    "zero_grad between backward() and step() would throw the sum away: an AssertionError says so, as Horovod's does."
    weights = weights_of("plain", rng)
    for p in (1, 2):
        batches = [samples(3, rng) for _ in range(p)]
        arguments = lambda rank, batches=batches: deepcopy(("plain", weights, *batches[rank]))  # noqa: E731
        for raised, after in student.ranks(
            "DistributedOptimizer", p, arguments, harness="horovod_out_of_order"
        ).results:
            checks.that(
                raised == "AssertionError",
                f"p = {p}: zero_grad() after backward() and before step() "
                + (f"raises {show.show(raised)}" if raised else "goes through, and the sum over the ranks is lost")
                + "; expected an AssertionError.",
            )
            checks.that(after == "", f"p = {p}: after step() zero_grad() raises {show.show(after)}; now it is allowed.")
