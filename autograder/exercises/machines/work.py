"""Weights, operations and bytes of layers. Oracle: torch's FLOP counter, on layers that hold no memory."""

import itertools

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.ready_made import COUNTERS

exercise = Exercise(
    "work",
    points=20,
    minutes=15,
    functions=("conv", "linear", "attention", "work"),
    forbid=COUNTERS,
    instead="Count by hand: how often is each weight used?",
)

ITEMSIZE = 4


def operations(*calls) -> int:
    """What torch counts while the calls run."""
    with FlopCounterMode(display=False) as counter:
        for call in calls:
            call()
    return counter.get_total_flops()


def conv_layer(channels: int, filters: int, kernel: int, size: int, groups: int) -> tuple[int, int, int]:
    """Weights, MACs, numbers in and out; each group is counted as a convolution of its own."""
    with torch.device("meta"):
        parts = [
            nn.Conv2d(channels // groups, filters // groups, kernel, padding="same", bias=False) for _ in range(groups)
        ]
        xs = [torch.empty(1, channels // groups, size, size) for _ in parts]
        flops = operations(*(lambda part=part, x=x: part(x) for part, x in zip(parts, xs, strict=True)))
        moved = sum(x.numel() + part(x).numel() for part, x in zip(parts, xs, strict=True))
    return sum(part.weight.numel() for part in parts), flops // 2, moved


def linear_layer(tokens: int, inputs: int, outputs: int) -> tuple[int, int, int]:
    with torch.device("meta"):
        layer, x = nn.Linear(inputs, outputs, bias=False), torch.empty(tokens, inputs)
        return layer.weight.numel(), operations(lambda: layer(x)) // 2, x.numel() + layer(x).numel()


def attention_layer(tokens: int, hidden: int) -> tuple[int, int, int]:
    with torch.device("meta"):
        q, k, v = (torch.empty(tokens, hidden) for _ in range(3))
        return 0, operations(lambda: (q @ k.T) @ v) // 2, q.numel() + k.numel() + v.numel() + (q @ v.T @ v).numel()


def in_training(sizes: list[int], batch: int) -> list[tuple[int, int]]:
    """Operations forward and backward of linear layers one after another, each counted by torch."""
    counts = []
    with torch.device("meta"):
        for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
            layer, x = nn.Linear(inputs, outputs, bias=False), torch.empty(batch, inputs, requires_grad=i > 0)
            once = operations(lambda layer=layer, x=x: layer(x))
            y = layer(x).sum()
            counts.append((once, operations(y.backward)))
    return counts


RULES = {
    "conv": (
        "Each filter has kernel x kernel weights for each channel of its group.",
        "Each weight is used once at every place of the image.",
        "Every channel of the image is read, and every filter's output is written.",
    ),
    "linear": (
        "Each output has a weight for each input.",
        "Each token is multiplied by every weight once.",
        "Every token's inputs are read, and its outputs are written.",
    ),
    "attention": (
        "Softmax(q kᵀ) v has nothing to learn.",
        "Each of two products has a MAC for each pair of tokens and each of the hidden numbers.",
        "q, k and v are read, and one output is written.",
    ),
}


def counts_are(got, expected: tuple[int, int, int], call: str, mistakes: list[dict[str, int]]) -> None:
    """The three numbers, each with its rule and the mistakes that give another one."""
    rules = RULES[call.partition("(")[0]]
    checks.that(
        type(got) in (tuple, list) and len(got) == 3,
        f"{call} is {show.show(got, 80)}, expected a tuple of three numbers: weights, MACs, numbers in and out.",
    )
    for value, right, what, known, why in zip(
        got, expected, ("weights", "MACs", "numbers in and out"), mistakes, rules, strict=True
    ):
        checks.that(
            checks.is_number(value),
            f"{call}: {what} are {show.an(show.type_name(value))}, expected a number.",
        )
        wrong = {sentence: other for sentence, other in known.items() if other != right}
        checks.close(value, right, name=f"{call}: {what}", why=why, mistakes=wrong, rtol=1e-12, atol=0.0)


def size(rng, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=rng))


def conv_is(student, channels: int, filters: int, kernel: int, side: int, groups: int) -> None:
    weights, macs, moved = expected = conv_layer(channels, filters, kernel, side, groups)
    double = "A multiply-accumulate is one MAC here; work makes two operations of it."
    apart = "Each group has channels / groups of the inputs: a filter sees no others."
    counts_are(
        student.conv(channels, filters, kernel, side, groups),
        expected,
        f"conv({channels}, {filters}, {kernel}, {side}, {groups})",
        [
            {
                apart: weights * groups,
                "You divide both channels and filters by the groups: keep all filters.": weights // groups,
                "A filter has kernel x kernel weights for each of its channels.": weights // kernel,
            },
            {
                double: 2 * macs,
                apart: macs * groups,
                "You divide both channels and filters by the groups: keep all filters.": macs // groups,
                "Every filter is used at every place of the image: size x size times.": weights,
                "An image has size x size places.": weights * side,
            },
            {
                "The outputs are missing: filters x size x size numbers.": channels * side**2,
                "The inputs are missing: channels x size x size numbers.": filters * side**2,
                "Weights are counted separately: they do not grow with the batch.": moved + weights,
            },
        ],
    )


@exercise.check(points=5)
def convolutions(student, rng):
    "conv: weights, MACs and numbers in and out of a convolution for one image, in one group and in several."
    conv_is(student, 64, 64, 3, 56, 1)  # of ResNet-50
    for groups in (1, 2, 4):
        channels, filters = (groups * size(rng, 2, 9) for _ in range(2))
        conv_is(student, channels, filters, (1, 3, 5)[size(rng, 0, 3)], size(rng, 5, 20), groups)
    conv_is(student, 6, 6, 3, 7, 6)


@exercise.check(points=6)
def products(student, rng):
    "linear and attention: matrix products with weights and without, for one sequence."
    for _ in range(3):
        tokens, inputs, outputs = (size(rng, 2, 60) for _ in range(3))
        weights, macs, moved = expected = linear_layer(tokens, inputs, outputs)
        counts_are(
            student.linear(tokens, inputs, outputs),
            expected,
            f"linear({tokens}, {inputs}, {outputs})",
            [
                {"The same weights serve all tokens.": tokens * weights},
                {
                    "A multiply-accumulate is one MAC here; work makes two operations of it.": 2 * macs,
                    "Every token is multiplied by all weights.": weights,
                },
                {
                    "Count inputs and outputs for every token.": inputs + outputs,
                    "The outputs are missing: tokens x outputs numbers.": tokens * inputs,
                    "Weights are counted separately: they do not grow with the batch.": moved + weights,
                },
            ],
        )
    for _ in range(3):
        tokens, hidden = size(rng, 2, 60), size(rng, 2, 60)
        _, macs, moved = expected = attention_layer(tokens, hidden)
        counts_are(
            student.attention(tokens, hidden),
            expected,
            f"attention({tokens}, {hidden})",
            [
                {"Attention has no weights of its own: those of q, k and v are linear layers.": 4 * hidden**2},
                {
                    "Count two products: the scores q kᵀ, and the scores times v.": macs // 2,
                    "A multiply-accumulate is one MAC here; work makes two operations of it.": 2 * macs,
                    "A causal mask hides half of the scores, but the products compute all of them.": macs // 4,
                    "All pairs of tokens: s^2.": macs // tokens,
                },
                {
                    "Count q, k and v as inputs, and one output of the same size.": 2 * tokens * hidden,
                    "The outputs are missing: s h numbers.": 3 * tokens * hidden,
                    "The scores stay inside: they are neither input nor output.": moved + tokens**2,
                },
            ],
        )


IN_TRAINING = {
    "operations forward": "Two for each MAC, and all samples of the batch.",
    "operations backward": "Twice the forward pass, once for the first layer; recomputation is one more forward pass.",
    "bytes of the forward pass": "4 for each number: in and out for each sample, the weights once.",
}


def work_is(student, layers: list[tuple[int, int, int]], batch: int, again: bool, counted=None) -> None:
    """`counted`: operations forward and backward of each layer, where torch has counted them."""
    call = f"work(layers, {batch}{', again=True' if again else ''})"
    got = student.work(list(layers), batch, again)
    checks.that(
        type(got) in (list, tuple)
        and len(got) == len(layers)
        and all(type(row) in (tuple, list) and len(row) == 3 for row in got),
        f"{call} with {len(layers)} layers is {show.show(got, 80)}, expected a list of {len(layers)} tuples: "
        "operations forward, operations backward, bytes.",
    )
    for i, ((weights, macs, moved), row) in enumerate(zip(layers, got, strict=True)):
        forward, backward = counted[i] if counted else (2 * batch * macs, 2 * batch * macs * (2 if i else 1))
        right = forward, backward + again * forward, ITEMSIZE * (batch * moved + weights)
        known = [
            {
                "A multiply-accumulate is two operations.": forward // 2,
                "That is for one sample: the batch has more.": forward // batch,
                "That is forward and backward together.": forward + right[1],
            },
            {
                "The first layer's inputs are data and need no gradient: count one product.": 2 * forward
                + again * forward,
                "Backward is two products, for the inputs' gradient and for the weights'.": forward + again * forward,
                "Recomputation is one more forward pass.": backward,
                "Recomputation is counted twice.": backward + 2 * again * forward,
                "A multiply-accumulate is two operations.": right[1] // 2,
            },
            {
                "The weights are read once for the whole batch.": ITEMSIZE * batch * (moved + weights),
                "The weights must be read, too.": ITEMSIZE * batch * moved,
                "These are numbers: each has 4 bytes in float32.": batch * moved + weights,
                "That is for one sample: the batch has more.": ITEMSIZE * (moved + weights),
                "Numbers in float32 have 4 bytes.": 2 * (batch * moved + weights),
            },
        ]
        for value, expected, what, mistakes in zip(row, right, IN_TRAINING, known, strict=True):
            name = f"{call}: {what} of layer {i}, (weights, MACs, in and out) = ({weights}, {macs}, {moved})"
            checks.that(checks.is_number(value), f"{name}: {show.an(show.type_name(value))}, expected a number.")
            wrong = {sentence: other for sentence, other in mistakes.items() if other != expected}
            checks.close(value, expected, name=name, why=IN_TRAINING[what], mistakes=wrong, rtol=1e-12, atol=0.0)


@exercise.check(points=5)
def forward_and_backward(student, rng):
    "work: two operations per MAC forward, twice that backward except for the first layer, and the bytes."
    for batch in (3, 32):
        sizes = [size(rng, 3, 50) for _ in range(5)]
        layers = [linear_layer(1, a, b) for a, b in itertools.pairwise(sizes)]
        work_is(student, layers, batch, False, in_training(sizes, batch))
    first = conv_layer(3, 3, 3, 9, 1)
    work_is(student, [first, attention_layer(7, 5), first, linear_layer(7, 5, 4)], 2, False)


@exercise.check(points=4, needs="forward_and_backward")
def once_more(student, rng):
    "work: recomputation costs each layer one more forward pass, but no more bytes forward."
    for batch in (1, 4):
        layers = [linear_layer(size(rng, 2, 9), size(rng, 3, 30), size(rng, 3, 30)) for _ in range(3)]
        work_is(student, layers, batch, True)
