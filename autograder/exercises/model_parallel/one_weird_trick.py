"""Which layers to cut by the batch and which by the network. Oracle: bytes in a trace, and a search of all plans."""

from functools import cache

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.sessions.errors import StudentError
from hpcdl.collectives import all_gather, reduce_scatter, ring_all_reduce
from hpcdl.comm import simulate
from hpcdl.nn.networks import alexnet, vgg16

exercise = Exercise(
    "one_weird_trick",
    points=10,
    minutes=12,
    functions=("volume", "one_weird_trick"),
    forbid=("torch.distributed.tensor",),  # it has the costs of collectives
    instead="Write the formula yourself.",
)

HOW = ("data", "model")
RATIOS = (0.7, 1.5, 0.02, 3.0, 0.3, 50.0)  # a layer's weights to the inputs of its batch: some are close calls
UNIT = 5040  # all that is counted is a multiple of it, so that p = 1 to 10 divide it


def counted(n: int, p: int, how: str) -> float:
    """Bytes that each rank sends for n numbers."""
    return for_a_unit(p, how) * n / UNIT


@cache
def for_a_unit(p: int, how: str) -> int:
    """The same for `UNIT` numbers, from the trace of the library's own collectives."""

    def rank(comm):
        if how == "data":
            ring_all_reduce(torch.zeros(UNIT), comm)
        else:
            whole = torch.zeros(UNIT)
            all_gather(whole, comm)
            reduce_scatter(whole, comm)

    return simulate(rank, p).bytes_sent[0]


def volume_is(student, weights: int, inputs: int, batch: int, p: int, how: str) -> None:
    call = f'volume({weights}, {inputs}, {batch}, {p}, "{how}")'
    got = student.volume(weights, inputs, batch, p, how)
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number of bytes.")
    n = weights if how == "data" else batch * inputs
    expected = counted(n, p, how)
    mistakes = {
        "A number has 4 bytes.": expected / 4,
        "That is half: the sums must return to all ranks, too."
        if how == "data"
        else "That is half: backward, the gradients of the inputs are summed and scattered, as much again.": expected
        / 2,
        "Each rank keeps its own part: it sends (p - 1)/p of the tensor.": 8 * n,
        "That is the volume of the other cut.": counted(batch * inputs if how == "data" else weights, p, how),
        "That is what all ranks send together: divide by p.": p * expected,
        "The ranks need the inputs of the whole batch, not only of their part.": expected / p,
        "Count the whole batch, not one sample.": expected / batch,
    }
    why = f"This is what each of {p} ranks sends of the simulated machine for {n:,} numbers."
    mistakes = {sentence: value for sentence, value in mistakes.items() if value != expected}
    checks.close(got, float(expected), name=call, why=why, mistakes=mistakes, rtol=1e-9)


@exercise.check(points=3)
def by_the_batch(student, rng):
    "volume: data parallelism sends the gradients round a ring."
    for p in (5, 2, 7, 1, whole_number(rng, 3, 10)):
        batch = whole_number(rng, 6, 200)
        weights, inputs = (UNIT * int(n) for n in torch.randint(1, 50, (2,), generator=rng))
        volume_is(student, weights, inputs, batch, p, "data")


@exercise.check(points=3)
def by_the_network(student, rng):
    "volume: model parallelism gathers the inputs, and scatters the sums of their gradients."
    for p in (5, 2, 7, 1, whole_number(rng, 3, 10)):
        batch = whole_number(rng, 6, 200)
        weights, inputs = (UNIT * int(n) for n in torch.randint(1, 50, (2,), generator=rng))
        volume_is(student, weights, inputs, batch, p, "model")


def cheapest(layers: list, batch: int, p: int) -> list[str]:
    """Of all 2^L plans the one that sends least."""
    prices = torch.tensor([[counted(w, p, "data"), counted(batch * n, p, "model")] for w, n in layers]).double()
    plans = (torch.arange(2 ** len(layers))[:, None] >> torch.arange(len(layers))) & 1  # a row for each
    best = plans[torch.where(plans == 0, prices[:, 0], prices[:, 1]).sum(1).argmin()]
    return [HOW[how] for how in best.tolist()]


def by_volume(student, layers: list, batch: int, p: int) -> list[str]:
    """Return the cheapest plan by the student's own `volume`; nothing if it fails."""
    try:
        prices = [[student.volume(*layer, batch, p, how) for how in HOW] for layer in layers]
        return [HOW[price.index(min(price))] for price in prices]
    except (StudentError, TypeError):
        return []


def plan_is(student, layers: list, batch: int, p: int, call: str) -> None:
    got, expected = student.one_weird_trick([tuple(layer) for layer in layers], batch, p), cheapest(layers, batch, p)
    got = list(got) if type(got) is tuple else got
    if got == expected:
        return
    other = {"data": "model", "model": "data"}
    mistakes = {
        "This plan sends the most: take the cheaper way for each layer.": [other[how] for how in expected],
        "You cut all layers by the batch: decide for each layer.": ["data"] * len(layers),
        "You cut all layers by the network: decide for each layer.": ["model"] * len(layers),
        "This plan is the cheapest for a batch of one sample: the inputs of the whole batch are gathered.": cheapest(
            layers, 1, p
        ),
        "This plan is the cheapest if each rank has `batch` samples, but `batch` is the total.": cheapest(
            layers, batch * p, p
        ),
        "This plan is the cheapest for a p-th of the batch: a rank needs the inputs of the whole batch.": cheapest(
            layers, max(1, batch // p), p
        ),
    }
    mistakes = {sentence: plan for sentence, plan in mistakes.items() if plan != expected}
    why = "Of all plans with data or model for each layer, this one sends the least."
    if got == by_volume(student, layers, batch, p):
        mistakes, why = {}, f"{why} Yours is the cheapest by your own `volume`."
    checks.equal(got, expected, name=call, why=why, mistakes=mistakes)


@exercise.check(points=2)
def least_of_all_plans(student, rng):
    "one_weird_trick: of all plans for a network, choose the one that sends the least."
    for p, low, high in ((2, 6, 20), (4, 21, 60), (8, 61, 200), (whole_number(rng, 3, 10), 10, 200)):
        batch, ratios = whole_number(rng, low, high), [RATIOS[i] for i in torch.randperm(len(RATIOS), generator=rng)]
        inputs = (UNIT * torch.randint(1, 1000, (len(RATIOS),), generator=rng)).tolist()
        layers = [(int(ratio * batch * n), n) for ratio, n in zip(ratios, inputs, strict=True)]
        plan_is(student, layers, batch, p, f"one_weird_trick(6 layers, {batch}, {p})")


@exercise.check(points=2, needs="least_of_all_plans")
def alexnet_and_vgg(student, rng):
    "one_weird_trick: AlexNet's and VGG-16's convolutions by the batch, their linear layers by the network; or not?"
    for name, network in (("alexnet", alexnet()), ("vgg16", vgg16())):
        layers = [(layer.weights, layer.inputs) for layer in network]
        for batch in (128, 2048, 16384):
            plan_is(student, layers, batch, 8, f"one_weird_trick({name}, {batch}, 8)")
