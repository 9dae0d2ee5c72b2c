"""What training holds on each rank. Oracle: the library's cost model, and what ZeRO's authors printed."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from hpcdl.cost import memory as cost

exercise = Exercise("memory", points=10, minutes=12, functions=("memory", "largest", "activations"))

PRINTED = (120.0, 31.4, 16.6, 1.9)  # GB of 7.5 billion parameters on 64 ranks, by stage (Rajbhandari et al. 2020)
WRONG_BYTES = {  # of states, a gradient and a weight
    "The optimizer has 12 bytes for each parameter: momentum, variance, and the weight again in float32.": (
        8,
        2,
        2,
    ),
    "Weights and gradients have 16 bits here, 2 bytes each.": (12, 4, 4),
    "The gradient is missing: 2 bytes for each parameter.": (12, 0, 2),
    "The weights are missing: 2 bytes for each parameter.": (12, 2, 0),
}


def a_number(got, call: str) -> None:
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number.")


def memory_is(student, parameters: int, p: int, stage: int) -> float:
    got, call = student.memory(parameters, p, stage), f"memory({parameters}, {p}, {stage})"
    a_number(got, call)
    expected = cost.zero(parameters, p, stage)
    mistakes = {
        s: cost.zero(parameters, p, stage, optimizer=o, gradient=g, weight=w) for s, (o, g, w) in WRONG_BYTES.items()
    }
    mistakes |= {
        "That is stage 0: from stage 1 on, divide by p.": cost.zero(parameters, p, 0),
        "That is one stage too far: stage 1 divides only states, stage 2 also gradients.": cost.zero(
            parameters, p, min(3, stage + 1)
        ),
        "That is one stage too few: stage 3 divides all three.": cost.zero(
            parameters, p, stage - 1 if stage > 1 else stage
        ),
        "Stage 1 divides the states, 12 bytes for each parameter, stage 2 also gradients, stage 3 also weights.": (
            parameters * (16 - sum((2, 2, 12)[:stage]) * (1 - 1 / p))
        ),
        "That is what all ranks hold together.": p * expected,
        "You divide everything at every stage.": cost.zero(parameters, p, 3),
    }
    mistakes = {s: v for s, v in mistakes.items() if v != expected}
    why = f"12 bytes of states, 2 of gradient, 2 of weight; divided by {p}: {', '.join(cost.STAGES[1 : stage + 1])}."
    checks.close(
        got, expected, name=call, why=why if stage else "Nothing is divided.", mistakes=mistakes, rtol=1e-9, atol=0.0
    )
    return got


@exercise.check(points=4)
def states_gradients_weights(student, rng):
    "memory: what each rank holds at each stage of ZeRO; 120, 31.4, 16.6, 1.9 GB for 7.5 billion parameters."
    for stage, printed in enumerate(PRINTED):
        got = memory_is(student, 7_500_000_000, 64, stage)
        checks.equal(round(got / 1e9, 1), printed, name=f"GB at stage {stage}, as ZeRO's authors printed them")
        parameters, p = torch.randint(2, 1000, (2,), generator=rng).tolist()
        memory_is(student, parameters, p, stage)
        memory_is(student, 1000, 1, stage)


@exercise.check(points=1, needs="states_gradients_weights")
def the_largest_that_fits(student, rng):
    "largest: the model whose weights, gradients and states just fit, not rounded."
    for stage in range(4):
        p, gigabytes = int(torch.randint(2, 500, (), generator=rng)), int(torch.randint(8, 200, (), generator=rng))
        largest_is(student, gigabytes * 1e9, p, stage)
        largest_is(student, 100.5, 3, stage)


def largest_is(student, nbytes: float, p: int, stage: int) -> None:
    got, call = student.largest(nbytes, p, stage), f"largest({nbytes:g}, {p}, {stage})"
    a_number(got, call)
    expected = nbytes / cost.zero(1, p, stage)
    mistakes = {
        "That is rounded down: return the exact quotient.": float(int(expected)),
        "You count all ranks' memory: only what the stage divides is shared.": p * nbytes / 16,
        "Your answer ignores the stage.": nbytes / 16,
        "These are bytes: return the number of parameters that take them.": nbytes * cost.zero(1, p, stage),
    }
    mistakes = {s: v for s, v in mistakes.items() if abs(v - expected) > 1e-6 * expected}
    checks.close(got, expected, name=call, mistakes=mistakes, why="memory(largest(...), p, stage) is nbytes again.")


def activations_are(student, rng, recompute: str, t: int, cut: bool) -> None:
    s, b, a, k = (int(torch.randint(2, 50, (), generator=rng)) | 1 for _ in range(4))  # odd: t divides none of them
    h = a * k
    call = f'activations({s}, {b}, {h}, {a}, "{recompute}", t={t}, cut={cut})'
    got = student.activations(s, b, h, a, recompute, t=t, cut=cut)
    a_number(got, call)
    expected = cost.activations(s, b, h, a, tensor=t, sequence_parallel=cut, recompute=recompute)
    tokens, scores = s * b * h, 5 * a * b * s * s
    whole = tokens * 10 / (t if cut else 1)
    mistakes = {
        "full": {
            "Only the layer's input is kept, 2 s b h bytes.": 34 * tokens,
            "The input has 2 bytes for each number.": expected / 2 if t == 1 else expected,
        },
        "selective": {
            "Selective recomputation drops the scores: do not count them.": whole + (24 * tokens + scores) / t,
        },
        "nothing": {
            "The scores of attention are missing: 5 a b s^2.": whole + 24 * tokens / t,
            "Tensor parallelism divides the scores of attention, too.": whole + 24 * tokens / t + scores,
        },
    }[recompute] | {
        "Every head has its own scores, for every sample: 5 a b s^2.": whole + (24 * tokens + scores / a) / t,
        "The scores are between all pairs of tokens: s^2.": whole + (24 * tokens + scores / s) / t,
        "The 10 s b h around normalizations and dropouts are whole on every rank unless the sequence is cut.": expected
        - whole
        + tokens * 10 / t,
        "With the sequence cut, the 10 s b h are divided by t, too.": expected - whole + tokens * 10,
        "That is without tensor parallelism: divide by t what it divides.": cost.activations(
            s, b, h, a, recompute=recompute
        ),
        "You divide everything by t.": cost.activations(s, b, h, a, recompute=recompute) / t,
    }
    mistakes = {sentence: value for sentence, value in mistakes.items() if abs(value - expected) > 1e-6 * expected}
    checks.close(got, expected, name=call, mistakes=mistakes, rtol=1e-9, atol=0.0, why="Korthikanti's table 2.")


@exercise.check(points=3)
def what_a_layer_keeps(student, rng):
    "activations: s b h (34 + 5 a s / h); without the scores; only the input."
    for recompute in ("nothing", "selective", "full"):
        for _ in range(3):
            activations_are(student, rng, recompute, 1, False)


@exercise.check(points=2, needs="what_a_layer_keeps")
def over_ranks(student, rng):
    "activations: what t ranks of tensor parallelism divide, with and without a cut sequence."
    for recompute in ("nothing", "selective", "full"):
        for t in (2, 8):
            for cut in (False, True):
                activations_are(student, rng, recompute, t, cut)
