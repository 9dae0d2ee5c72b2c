"""The hours of a training: at the peak, at every layer's roof, as measured. Oracle: sums in exact fractions."""

from fractions import Fraction

import torch

from autograder import checks, show
from autograder.authoring import Exercise

exercise = Exercise(
    "hours", points=20, minutes=18, functions=("activation", "pooling", "batch_norm", "hours"), uses=("roofline",)
)

KINDS = ("arithmetic", "roof", "measured")


RULES = {
    "activation": "An activation reads each number once and writes it once; it learns nothing.",
    "batch_norm": "Each channel has a scale and a shift. The input is read twice, the output is written once.",
    "pooling": "Every pixel is read, and one number is written for each window; nothing is learned.",
}


def row_is(student, name: str, sizes: tuple, right: tuple, told: dict[str, tuple]) -> None:
    got, call = getattr(student, name)(*sizes), f"{name}{sizes}"
    checks.that(
        type(got) in (tuple, list) and len(got) == 3 and all(checks.is_number(x) for x in got),
        f"{call} is {show.show(got, 60)}, expected three numbers: weights, MACs, numbers moved.",
    )
    if tuple(got) != right:
        mistake = next((said for said, value in told.items() if tuple(got) == value != right), "")
        raise checks.CheckFailure(
            f"{call} is {show.show(tuple(got))}, expected {right}.",
            why=f"Weights, MACs, and how many numbers are read and written, for one image. {RULES[name]}",
            mistake=mistake,
        )


@exercise.check(points=7)
def layers_without_products(student, rng):
    "activation, pooling, batch_norm: no products, but every number is read and written."
    for _ in range(3):
        channels, size = (1 + torch.randint(1, 30, (2,), generator=rng)).tolist()
        numbers = channels * size**2
        row_is(
            student,
            "activation",
            (channels, size),
            (0, 0, 2 * numbers),
            {"Count the outputs, too.": (0, 0, numbers)},
        )
        told = {
            "The input is read twice: for mean and variance, and again to normalize it.": (
                2 * channels,
                0,
                2 * numbers,
            ),
            "A scale and a shift for each channel are learned.": (0, 0, 3 * numbers),
            "The outputs are written, too.": (2 * channels, 0, 2 * numbers),
        }
        row_is(student, "batch_norm", (channels, size), (2 * channels, 0, 3 * numbers), told)
        window = int(torch.randint(2, 5, (), generator=rng))
        sizes, inside = (channels, window * size, window), channels * (window * size) ** 2
        told = {
            "The output is smaller than the input.": (0, 0, 2 * inside),
            "Count the inputs, too.": (0, 0, numbers),
            "Count the outputs, too.": (0, 0, inside),
            "Rows and columns are both divided by the window.": (0, 0, inside + inside // window),
        }
        row_is(student, "pooling", sizes, (0, 0, inside + numbers), told)


def exact(layers: list, batch: int, images: int, epochs: int, device: tuple, rate: float, kind: str = "") -> dict:
    """Hours of the three kinds, or what a usual mistake makes of them."""
    peak, bandwidth, itemsize = map(Fraction, device)
    steps = Fraction(images * epochs, 1 if kind == "no batch" else batch)
    places = [layers.index(layer) for layer in layers] if kind == "equal" else range(len(layers))
    passes = [Fraction(1 if kind == "forward" else 3 if i or kind == "first" else 2) for i in places]
    arithmetic = [(1 if kind == "macs" else 2) * batch * Fraction(macs) / peak for _, macs, _ in layers]
    memory = [
        (4 if kind == "float32" else itemsize)
        * (batch * Fraction(moved) + (batch if kind == "weights" else 1) * weights)
        / bandwidth
        for weights, _, moved in layers
    ]
    pick = (lambda a, m: a + m) if kind == "sum" else max
    at_roof = sum(n * pick(a, m) for n, a, m in zip(passes, arithmetic, memory, strict=True))
    if kind == "whole":
        at_roof = pick(
            sum(n * a for n, a in zip(passes, arithmetic, strict=True)),
            sum(n * m for n, m in zip(passes, memory, strict=True)),
        )
    unit = 1 if kind == "seconds" else 3600
    return {
        "arithmetic": float(steps * sum(n * a for n, a in zip(passes, arithmetic, strict=True)) / unit),
        "roof": float(steps * at_roof / unit),
        "measured": float(Fraction(images * epochs) / Fraction(rate) / unit),
    }


TOLD = {
    "macs": "A MAC is two operations.",
    "forward": "The backward pass takes twice the forward pass: three passes in all, two for the first layer.",
    "first": "The first layer's input needs no gradient: two passes for it, three for every other layer.",
    "equal": "A later layer may equal the first, and needs three passes: count by its place.",
    "no batch": "A step takes a whole batch: there are images * epochs / batch steps.",
    "weights": "The weights are read once for each step, not for each image.",
    "float32": "Each number has `itemsize` bytes.",
    "sum": "Arithmetic and memory work at the same time: take the longer, layer by layer.",
    "whole": "Each layer has its own roof: take the longer for each layer, then add.",
    "seconds": "Those are seconds.",
}


def three_numbers(got, call: str) -> None:
    checks.that(
        type(got) is dict and set(got) == set(KINDS) and all(map(checks.is_number, got.values())),
        f"{call} is {show.show(got, 80)}, expected a dict of the numbers {', '.join(KINDS)}.",
    )


@exercise.check(points=10, needs="layers_without_products")
def three_ways(student, rng):
    "hours: the peak's, the roofs' and the measured hours of a training."
    for batch, images, epochs, device, rate in (
        (4, 1000, 3, (1e6, 2e5, 2), 12.8),
        (32, 6400, 90, (8e6, 1e6, 4), 100.0),
        (5, 64, 2, (512.0, 64.0, 2), 0.25),
    ):
        sizes = torch.randint(1, 40, (5, 2), generator=rng).tolist()
        sizes[1] = [30 + n // 4 for n in sizes[1]]  # limited by arithmetic, after a batch norm, which never is
        first, second, third = ((9 * c * c, 9 * c * c * s, 2 * c * s) for c, s in sizes[:3])
        norms = [(2 * c, 0, 3 * c * s) for c, s in sizes[3:]]
        layers = [first, norms[0], second, third, norms[1], first]
        got = student.hours(list(layers), batch, images, epochs, *device[:2], rate, device[2])
        call = (
            f"hours({show.show(layers)}, {batch}, {images}, {epochs}, {show.show(device[:2])}, {rate:g}, {device[2]})"
        )
        three_numbers(got, call)
        right = exact(layers, batch, images, epochs, device, rate)
        wrong = {said: exact(layers, batch, images, epochs, device, rate, kind) for kind, said in TOLD.items()}
        for kind in KINDS:
            told = {said: value[kind] for said, value in wrong.items() if abs(value[kind] / right[kind] - 1) > 1e-9}
            checks.close(got[kind], right[kind], name=f"{call}: {kind}", mistakes=told, rtol=1e-9)


@exercise.check(points=3, needs="three_ways")
def the_lectures_hours(student, rng):
    "hours: ResNet-50 on a V100, 90 epochs: the lecture's 6.7 hours at the peak and 22 hours as measured."
    one = (25_500_000, 3_900_000_000, 1)  # all of ResNet-50 as one layer, behind a first one that is free
    got = student.hours([(0, 0, 0), one], 256, 1_280_000, 90, 112e12, 900e9, 1457.0, 2)
    three_numbers(got, "hours(...) of ResNet-50")
    checks.close(got["arithmetic"], 6.686, name="ResNet-50's hours at the peak of 112 TFLOP/s", rtol=1e-3)
    checks.close(got["measured"], 21.96, name="ResNet-50's hours at 1,457 images/s", rtol=1e-3)
