"""Which way of training fits, and is fastest? Oracle: the library's cost model, of all four ways."""

from typing import NamedTuple

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import one_of
from autograder.sessions.errors import StudentError
from hpcdl.cost import memory as cost
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import MACHINES
from hpcdl.cost.reached import Prediction
from hpcdl.cost.training import predict
from hpcdl.cost.work import Transformer

exercise = Exercise(
    "which_when",
    points=10,
    minutes=12,
    functions=("holds", "which"),
    offers=("hpcdl.cost.reached.Prediction", "hpcdl.cost.scaling.Iteration"),
)

WAYS = ("DDP", "FSDP2", "tensor", "pipeline")
CARDS = tuple(name for name, machine in MACHINES.items() if {"fp16"} <= machine.peaks.keys())
MOST = 4000  # random trainings among which one with each answer is looked for


class Case(NamedTuple):
    """A training: its model, its machine, and the bytes that each rank may hold."""

    model: tuple[int, int, int, int, int]
    machine: str
    ranks: int
    batch: int
    budget: float


def drawn(rng) -> Case:
    layers, heads = one_of((16, 24, 32, 48), rng), one_of((16, 32, 48), rng)
    hidden, sequence = heads * one_of((64, 128), rng), one_of((512, 1024, 2048), rng)
    model = (layers, hidden, sequence, 1000 * int(torch.randint(30, 60, (), generator=rng)), heads)
    budget = 1e9 * int(torch.randint(4, 80, (), generator=rng))
    return Case(model, one_of(CARDS, rng), one_of((2, 4, 8, 16, 32), rng), one_of((8, 48, 64, 512), rng), budget)


def held(way: str, model: tuple, ranks: int) -> float:
    layers, hidden, sequence, _, heads = model
    parameters = Transformer(*model).parameters
    tensor = ranks if way == "tensor" else 1
    return cost.zero(parameters, ranks, 0 if way == "DDP" else 3) + cost.first_stage(
        layers, cost.activations(sequence, 1, hidden, heads, tensor=tensor)
    )


def possible(way: str, case: Case) -> bool:
    whole = {"tensor": case.model[4], "pipeline": case.model[0]}.get(way, case.batch)
    return whole % case.ranks == 0


def predicted(way: str, case: Case) -> Prediction:
    p = case.ranks
    cuts = {"DDP": Layout(p), "FSDP2": Layout(p, zero=3), "tensor": Layout(tensor=p), "pipeline": Layout(pipeline=p)}
    layout = cuts[way]._replace(microbatch=1, precision="fp16", itemsize=2, update_bytes=28)
    return predict(Transformer(*case.model), MACHINES[case.machine], layout, case.batch)


def fitting(case: Case) -> dict[str, Prediction]:
    """The seconds of the ways that are possible and fit."""
    ways = (way for way in WAYS if possible(way, case) and held(way, case.model, case.ranks) <= case.budget)
    return {way: predicted(way, case) for way in ways}


def accepted(fits: dict[str, Prediction]) -> set[str]:
    """The fastest, and those as fast as the upper end of its interval."""
    best = min(fits.values(), key=lambda found: found.seconds)
    return {way for way, found in fits.items() if found.seconds <= best.high}


MISTAKES = {
    "Weights and gradients have 2 bytes each, and Adam's states 12: all three are held.": lambda way, m, p: (
        held(way, m, p) - Transformer(*m).parameters * 12 / (1 if way == "DDP" else p)
    ),
    "DDP copies weights, gradients and states to every rank: nothing of them is divided.": lambda way, m, p: held(
        "FSDP2" if way == "DDP" else way, m, p
    ),
    "Activations of one sample: FSDP2 shards what belongs to the weights, not the activations.": lambda way, m, p: (
        cost.zero(Transformer(*m).parameters, p, 3) + m[0] * cost.activations(m[2], 1, m[1], m[4]) / p
        if way == "FSDP2"
        else held(way, m, p)
    ),
    "Of 34 parts, tensor parallelism keeps 10 whole on each rank: the inputs of norms and dropout.": lambda way, m, p: (
        cost.zero(Transformer(*m).parameters, p, 3) + m[0] * cost.activations(m[2], 1, m[1], m[4]) / p
        if way == "tensor"
        else held(way, m, p)
    ),
    "A stage has a p-th of the layers, and the first one holds p samples at a time.": lambda way, m, p: (
        cost.zero(Transformer(*m).parameters, p, 3) + m[0] * cost.activations(m[2], 1, m[1], m[4]) / p
        if way == "pipeline"
        else held(way, m, p)
    ),
    "The activations are missing.": lambda way, m, p: cost.zero(
        Transformer(*m).parameters, p, 0 if way == "DDP" else 3
    ),
}


@exercise.check(points=4)
def bytes_of_a_rank(student, rng):
    "holds: weights, gradients, states and activations on each rank, for each of the four ways."
    for _ in range(4):
        case = drawn(rng)
        case = case._replace(ranks=8) if case.ranks == 4 else case  # 16 - 12 bytes are 16 / 4: two mistakes in one
        for way in WAYS:
            got, right = student.holds(way, case.model, case.ranks), held(way, case.model, case.ranks)
            call = f"holds({way!r}, {case.model}, {case.ranks})"
            checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number.")
            told = {said: wrong(way, case.model, case.ranks) for said, wrong in MISTAKES.items()}
            told = {said: value for said, value in told.items() if abs(value / right - 1) > 1e-9}
            states = cost.zero(Transformer(*case.model).parameters, case.ranks, 0 if way == "DDP" else 3)
            why = f"{states:.6g} bytes of weights, gradients and states, {right - states:.6g} of activations."
            checks.close(got, right, name=call, why=why, mistakes=told, rtol=1e-13)


def cases(rng, enough: int = 1) -> list[Case]:
    """Trainings for which one answer is right: each of the five answers, `enough` times; DDP, FSDP2 and pipeline are
    faster than others that fit, too."""
    left = dict.fromkeys((*WAYS, None), enough)
    found = []
    for _ in range(MOST):
        case = drawn(rng)
        fits = fitting(case)
        good = accepted(fits) if fits else {None}
        (answer, *others) = good
        alone = len(fits) == 1 and answer != "tensor"  # where only one fits, seconds do not matter
        if not others and not alone and left[answer]:
            left[answer] -= 1
            found.append(case)
        if not any(left.values()):
            return found
    raise RuntimeError(f"of {MOST} random trainings none has the answer {left}")


def tempting(rng) -> Case:
    """A training whose batch the ranks divide, and for which a way fits that is not possible: it has too few parts."""
    for _ in range(MOST):
        case = drawn(rng)
        parts = {"tensor": case.model[4], "pipeline": case.model[0]}
        few = [way for way, number in parts.items() if number < case.ranks]
        if case.batch % case.ranks == 0 and any(held(way, case.model, case.ranks) <= case.budget for way in few):
            return case
    raise RuntimeError(f"none of {MOST} random trainings has a way that fits and is not possible")


def of_two_machines(rng) -> list[Case]:
    """A training on two machines, which have no right answer in common."""
    for _ in range(MOST):
        case = drawn(rng)
        both = [case._replace(machine=name) for name in ("V100 (DGX-2)", "H800")]
        fits = [fitting(each) for each in both]
        if all(fits) and not accepted(fits[0]) & accepted(fits[1]):
            return both
    raise RuntimeError(f"none of {MOST} random trainings depends on the machine")


def full_to_the_brim() -> Case:
    """A training for which tensor parallelism holds exactly the budget, and every other way more."""
    case = Case((16, 1024, 512, 32_768, 16), CARDS[0], 8, 64, 0.0)
    return case._replace(budget=held("tensor", case.model, case.ranks))


def asked(student, case: Case):
    call = f"which({case.model}, {case.machine!r}, {case.ranks}, {case.batch}, {case.budget:g})"
    try:
        return call, student.which(*case)
    except StudentError as error:
        if "need a multiple" not in error.text and "no more ranks" not in error.text:
            raise
        raise checks.CheckFailure(
            f"{call}: {error.text}",
            mistake="A way is not possible: DDP and FSDP2 need a batch that the ranks divide, tensor parallelism "
            "the heads, a pipeline the layers. Leave out the others before you predict their seconds.",
        ) from None


def right(student, case: Case) -> None:
    call, got = asked(student, case)
    fits = fitting(case)
    good = accepted(fits) if fits else {None}
    checks.that(type(got) in (str, type(None)), f"{call} is {show.show(got, 80)}, expected the name of a way, or None.")
    if got in good:
        return
    listed = ", ".join(f"{way} {found.seconds:.3g} s" for way, found in fits.items()) or "none"
    raise checks.CheckFailure(
        f"{call} is {show.show(got)}.",
        got=show.show(got),
        expected=f"{' or '.join(sorted(map(str, good)))}; the ways that fit into {case.budget / 1e9:g} GB: {listed}",
        mistake=why_not(got, case, fits),
    )


def why_not(got, case: Case, fits: dict[str, Prediction]) -> str:
    if got in fits:
        return f"{got} takes {fits[got].seconds:.3g} s: it fits, but is slower."
    if got not in WAYS:
        return "A way fits." if got is None else ""
    if not possible(got, case):
        return f"{got} is not possible: {case.ranks} ranks do not divide the batch, the heads or the layers."
    return f"With {got} a rank holds {held(got, case.model, case.ranks) / 1e9:.3g} GB."


@exercise.check(points=5, needs="bytes_of_a_rank", seconds=20.0)
def the_fastest_that_fits(student, rng):
    "which: of the ways that fit, the fastest, or one within the prediction's interval; None if none fits."
    for case in (tempting(rng), *cases(rng), *of_two_machines(rng), full_to_the_brim()):
        right(student, case)


@exercise.check(points=1, needs="the_fastest_that_fits", seconds=20.0)
def ranks_that_do_not_divide(student, rng):
    "which: a way whose batch, heads or layers the ranks do not divide is not possible."
    for batch, budget in ((9, 1e12), (10, 1e12), (16, 1e12)):
        for ranks in (4, 5, 16):
            case = drawn(rng)._replace(ranks=ranks, batch=batch, budget=budget)
            right(student, case)
