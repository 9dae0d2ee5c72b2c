"""What a training reaches of the peak, and how long it takes. Oracle: sums over layers, and published figures."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.machines.work import attention_layer, linear_layer
from autograder.exercises.ready_made import COUNTERS

exercise = Exercise(
    "utilization",
    points=15,
    minutes=12,
    functions=("transformer_flops", "utilization", "train_seconds"),
    forbid=COUNTERS,
    instead="Add up the products of the layers by hand, from their sizes.",
)

# Korthikanti et al. 2022, table 5: layers, hidden size, sequence, vocabulary, batch; seconds, GPUs; printed utilization
# of the model's operations, in percent. A100, 312 TFLOP/s; the scores are computed again. (The hardware's are printed
# as 52.8 and 57.0: the paper's formula adds three times what one more pass through attention's core takes.)
PRINTED = {
    "175 B": ((96, 12288, 2048, 51200, 64), 13.75, 64, 51.4),
    "1 T": ((128, 25600, 2048, 51200, 512), 71.49, 512, 56.3),
}
PEAK = 312e12


def forward(layers: int, hidden: int, sequence: int, vocabulary: int, batch: int) -> tuple[int, int, int]:
    """Operations of the linear layers, of attention and of the output, each product counted by torch."""
    s, h = sequence, hidden
    linear = linear_layer(s, h, 3 * h)[1] + linear_layer(s, h, h)[1] + 2 * linear_layer(s, h, 4 * h)[1]
    attention = attention_layer(s, h)[1]
    return (
        2 * batch * layers * linear,
        2 * batch * layers * attention,
        2 * batch * linear_layer(s, h, vocabulary)[1],
    )


def number(got, call: str) -> None:
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number.")


def distinct(mistakes: dict[str, float], expected: float) -> dict[str, float]:
    return {s: v for s, v in mistakes.items() if abs(v - expected) > 1e-9 * abs(expected)}


def flops_are(student, sizes: tuple[int, int, int, int, int]) -> float:
    layers, batch = sizes[0], sizes[-1]
    got, call = student.transformer_flops(*sizes), f"transformer_flops{sizes}"
    number(got, call)
    linear, attention, output = forward(*sizes)
    expected = 3 * (linear + attention + output)
    mistakes = {
        "Backward is twice as much as forward: three times in all.": linear + attention + output,
        "A multiply-accumulate is two operations.": expected / 2,
        "Attention is missing: two products of all pairs of tokens, 4 b s^2 h forward in each layer.": 3
        * (linear + output),
        "Attention has two products: the scores, and the scores times v.": 3 * (linear + attention / 2 + output),
        "A causal mask hides half of the scores, but the products compute all of them.": 3
        * (linear + attention / 2 + output),
        "The output is missing: every token is compared with all V words, 2 b s h V forward.": 3 * (linear + attention),
        "The embedding only looks words up: count V once, for the output.": 3 * (linear + attention + 2 * output),
        "The output comes once, not in each layer.": 3 * (linear + attention + layers * output),
        "The batch is missing.": expected / batch,
    }
    why = f"By layers: 72 b s h^2 + 12 b s^2 h, {layers} times; and 6 b s h V."
    checks.close(got, expected, name=call, why=why, mistakes=distinct(mistakes, expected), rtol=1e-12, atol=0.0)
    return expected


@exercise.check(points=6)
def every_product(student, rng):
    "transformer_flops: forward and backward of all products, as torch counts them."
    for _ in range(3):
        layers, hidden, sequence, vocabulary, batch = torch.randint(2, 40, (5,), generator=rng).tolist()
        flops_are(student, (layers, hidden, sequence, vocabulary, batch))
    for sizes, *_ in PRINTED.values():
        flops_are(student, sizes)


Training = tuple[str, float, float, float, int, float, float | None]


def trainings() -> list[Training]:
    """The published trainings: operations, those done again, seconds, GPUs, their peak, and the printed utilization."""
    parts = {name: forward(*sizes) for name, (sizes, *_) in PRINTED.items()}
    return [
        (f"{name} parameters.", 3.0 * sum(parts[name]), float(parts[name][1]), seconds, gpus, PEAK, printed)
        for name, (_, seconds, gpus, printed) in PRINTED.items()
    ]


def drawn(rng) -> Training:
    """Return a training with drawn figures, and no printed utilization."""
    a, b, c, d, e = (1 + torch.rand(5, generator=rng)).tolist()
    return "A training of drawn sizes.", 1e18 * a, 1e17 * b, 10 * c, int(20 * d), 1e14 * e, None


@exercise.check(points=4)
def printed_utilization(student, rng):
    "utilization: the model's and the hardware's; 51.4 % with 175 B parameters, 56.3 % with 1 T."
    for name, flops, again, seconds, gpus, peak, printed in (*trainings(), drawn(rng)):
        got = student.utilization(flops, again, seconds, gpus, peak)
        call = f"utilization({flops:.4g}, {again:.4g}, {seconds:g}, {gpus}, {peak:.4g})"
        checks.that(
            type(got) in (tuple, list) and len(got) == 2,
            f"{call} is {show.show(got, 80)}, expected a tuple of two shares: the model's, the hardware's.",
        )
        available = seconds * gpus * peak
        model, hardware = flops / available, (flops + again) / available
        shared = {
            "Return a share, not percent: divide by the peak, and no more.": 100.0,
            "Divide by the peak of all GPUs, not of one.": float(gpus),
        }
        others = (
            {"The model needs no operation twice: count what is recomputed only for the hardware.": hardware},
            {
                "The hardware's operations include what is recomputed.": model,
                "The hardware does both: what the model needs and what is recomputed.": again / available,
            },
        )
        whats = ("the model's share", "the hardware's share")
        for value, right, what, other in zip(got, (model, hardware), whats, others, strict=True):
            number(value, f"{call}: {what}")
            mistakes = {sentence: factor * right for sentence, factor in shared.items()} | other
            checks.close(value, right, name=f"{call}: {what}", mistakes=mistakes, why=name, rtol=1e-9, atol=0.0)
        rounded = round(100 * got[0], 1)
        checks.that(
            printed in (None, rounded), f"{name}: the model's share is {rounded} %; the published one is {printed} %."
        )


@exercise.check(points=5)
def seconds_to_the_end(student, rng):
    "train_seconds: six operations per parameter and token, eight if the forward pass is recomputed."
    cases = [(37e9, 14.8e12, 2048, 989.4e12, 0.35, False), (175e9, 300e9, 1024, 312e12, 0.45, True)]
    for _ in range(3):
        draw = torch.rand(5, generator=rng).tolist()
        parameters, tokens, gpus = 1e9 * (1 + draw[0]), 1e10 * (1 + draw[1]), int(2 + 90 * draw[2])
        cases.append((parameters, tokens, gpus, 1e14 * (1 + draw[3]), 0.2 + draw[4] / 2, draw[0] > 0.5))
    for case in cases:
        parameters, tokens, gpus, peak, share, again = case
        got, call = student.train_seconds(*case), f"train_seconds{tuple(case)}"
        number(got, call)
        one = parameters * tokens / (gpus * peak * share)
        expected = (8 if again else 6) * one
        mistakes = {
            "Two operations per parameter and token are only the forward pass.": 2 * one,
            "A MAC is two operations: 6, not 3.": expected / 2,
            "Recomputing everything is one more forward pass: 8.": 6 * one,
            "Without recomputation it is 6: the forward pass counts once.": 8 * one,
            "The GPUs do not reach their peak: divide by the share of it, too.": expected * share,
            "A smaller share takes longer: divide by it.": expected * share**2,
            "These are the seconds on one GPU.": expected * gpus,
        }
        checks.close(got, expected, name=call, mistakes=distinct(mistakes, expected), rtol=1e-9, atol=0.0)
