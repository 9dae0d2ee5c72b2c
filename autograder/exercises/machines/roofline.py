"""What limits a layer on a machine. Oracles: exact fractions, and a search over batches."""

from fractions import Fraction

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number

exercise = Exercise("roofline", points=25, minutes=20, functions=("roof", "place", "smallest_batch"))

INFINITY = float("inf")


def number(got, name: str) -> None:
    checks.that(checks.is_number(got), f"{name} is {show.an(show.type_name(got))}, expected a number.")


@exercise.check(points=7)
def the_roof(student, rng):
    "roof: the longer of arithmetic and memory, and which one it is."
    cases = [(4e9, 1e6, 4e9, 2e6), (1e6, 4e8, 1e9, 1e9), (8.0, 2.0, 4.0, 1.0)]
    for _ in range(4):
        cases.append(tuple((1e6 * torch.randint(1, 1000, (4,), generator=rng)).tolist()))
    for flops, nbytes, peak, bandwidth in cases:
        call = f"roof({flops:g}, {nbytes:g}, {peak:g}, {bandwidth:g})"
        got = student.roof(flops, nbytes, peak, bandwidth)
        checks.that(
            type(got) in (tuple, list) and len(got) == 2,
            f"{call} is {show.show(got, 60)}, expected a tuple: seconds, and which bound.",
        )
        number(got[0], f"{call}: the seconds")
        arithmetic, memory = flops / peak, nbytes / bandwidth
        mistakes = {
            "Arithmetic and memory work at the same time: take the longer, not the sum.": arithmetic + memory,
            "Memory may be the limit, too: bytes by bytes per second.": arithmetic,
            "Arithmetic may be the limit, too.": memory,
            "That is operations per second: return the seconds.": min(peak, flops / nbytes * bandwidth),
        }
        right = max(arithmetic, memory)
        mistakes = {s: v for s, v in mistakes.items() if abs(v - right) > 1e-9 * right}
        why = f"The longer of {arithmetic:.6g} s of arithmetic and {memory:.6g} s of memory traffic."
        checks.close(got[0], right, name=f"{call}: the seconds", why=why, mistakes=mistakes, rtol=1e-9, atol=0.0)
        bound = "compute" if arithmetic >= memory else "memory"
        checks.equal(
            got[1],
            bound,
            name=f"{call}: what limits it",
            why=f"{flops / nbytes:.3g} operations per byte; from {peak / bandwidth:.3g} on it is compute.",
        )


Layer = tuple[int, int, int]  # weights, multiplications with an addition, numbers in and out


def bytes_of(layer: Layer, batch: int, itemsize: int) -> int:
    weights, _, moved = layer
    return itemsize * (batch * moved + weights)


def placed(layer: Layer, batch: int, peak: float, bandwidth: float, itemsize: int) -> tuple[Fraction, Fraction, str]:
    """Operations for each byte, operations for each second, and what limits them."""
    flops, nbytes = 2 * batch * layer[1], bytes_of(layer, batch, itemsize)
    arithmetic, memory = Fraction(flops) / Fraction(peak), Fraction(nbytes) / Fraction(bandwidth)
    return Fraction(flops, nbytes), flops / max(arithmetic, memory), "compute" if arithmetic >= memory else "memory"


def drawn(rng: torch.Generator, count: int) -> list[Layer]:
    """Layers as tables have them: some with many operations for each number, some with few."""
    rows = []
    for _ in range(count):
        weights, moved = torch.randint(1, 5000, (2,), generator=rng).tolist()
        rows.append((weights, weights * int(torch.randint(1, 60, (), generator=rng)), moved))
    return rows


@exercise.check(points=7, needs="the_roof")
def each_layer(student, rng):
    "place: operations per byte, operations per second, and what limits them, layer by layer."
    for batch, itemsize, peak, bandwidth in ((1, 4, 1e6, 1e5), (32, 2, 4e6, 1e6), (7, 4, 64.0, 16.0)):
        layers = drawn(rng, 4)
        got = student.place(list(layers), batch, peak, bandwidth, itemsize)
        call = f"place({show.show(layers)}, {batch}, {peak:g}, {bandwidth:g}, {itemsize})"
        checks.that(
            type(got) in (list, tuple) and len(got) == len(layers),
            f"{call} is {show.show(got, 80)}, expected a list of {len(layers)} tuples.",
        )
        for layer, row in zip(layers, got, strict=True):
            checks.that(
                isinstance(row, (list, tuple)) and len(row) == 3,
                f"{call}: a row is {show.show(row, 80)}, expected operations per byte, per second, and the limit.",
            )
            intensity, rate, limit = placed(layer, batch, peak, bandwidth, itemsize)
            nbytes = bytes_of(layer, batch, itemsize)
            told = {
                "A MAC is two operations.": float(intensity) / 2,
                "The weights are read once for the whole batch, not for each sample.": 2
                * batch
                * layer[1]
                / (itemsize * batch * (layer[2] + layer[0])),
                "Weights are read, too.": 2 * layer[1] / (itemsize * layer[2]),
                "That is per number: each number has `itemsize` bytes.": float(intensity) * itemsize,
                "That is bytes per operation: invert it.": nbytes / (2 * batch * layer[1]),
            }
            told = {s: v for s, v in told.items() if abs(v / float(intensity) - 1) > 1e-9}
            name = f"{call}: layer {layer}"
            number(row[0], f"{name}: operations per byte")
            why = f"{2 * batch * layer[1]:,} operations of the whole batch, {nbytes:,} bytes."
            checks.close(
                row[0], float(intensity), name=f"{name}: operations per byte", why=why, mistakes=told, rtol=1e-9
            )
            told = {
                "No layer is faster than the peak.": float(intensity) * bandwidth,
                "Memory limits this one: operations per byte times bytes per second.": peak,
                "That is the time: return operations per second.": 2 * batch * layer[1] / float(rate),
            }
            told = {s: v for s, v in told.items() if abs(v / float(rate) - 1) > 1e-9}
            number(row[1], f"{name}: operations per second")
            why = "The peak, or what the bytes allow: operations per byte times bandwidth. The smaller one counts."
            checks.close(row[1], float(rate), name=f"{name}: operations per second", why=why, mistakes=told, rtol=1e-9)
            checks.equal(row[2], limit, name=f"{name}: what limits it")


def searched(layer: Layer, peak: float, bandwidth: float, itemsize: int, most: int = 1 << 40) -> float:
    """The smallest batch that arithmetic limits: doubled until it is large enough, then halved between."""

    def enough(batch: int) -> bool:
        return placed(layer, batch, peak, bandwidth, itemsize)[2] == "compute"

    high = 1
    while not enough(high):
        high *= 2
        if high > most:
            return INFINITY
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@exercise.check(points=7, needs="each_layer")
def the_batch_that_fills_it(student, rng):
    "smallest_batch: the first batch that arithmetic limits."
    cases = [
        ((4096 * 1000, 4096 * 1000, 5096), 112e12, 900e9, 2),
        ((10, 100, 5), 16.0, 2.0, 4),
        ((9, 90, 1), 8.0, 8.0, 2),
        ((300_001, 100, 1), 16.0, 2.0, 4),  # a batch that no small table reaches
    ]
    for layer in drawn(rng, 6):
        ridge = layer[1] / (2.0 * layer[2]) * float(torch.rand((), generator=rng))  # below the layer's own limit
        cases.append((layer, max(ridge, 1e-3) * 1000.0, 1000.0, 4))
    for layer, peak, bandwidth, itemsize in cases:
        right = searched(layer, peak, bandwidth, itemsize)
        if right == INFINITY or right > 1e9:
            continue
        got = student.smallest_batch(layer, peak, bandwidth, itemsize)
        call = f"smallest_batch({layer}, {peak:g}, {bandwidth:g}, {itemsize})"
        checks.that(type(got) is int, f"{call} is {show.show(got)}, expected an int.")
        told = {
            "One sample fewer is limited by memory: round up.": right - 1,
            "That batch is enough, but a smaller one is, too.": right + 1,
            "A MAC is two operations.": searched((layer[0], layer[1] // 2, layer[2]), peak, bandwidth, itemsize),
            "Inputs and outputs grow with the batch: count them, too.": searched(
                (layer[0], layer[1], 0), peak, bandwidth, itemsize
            ),
        }
        arithmetic, memory = 2 * right * layer[1] / peak, bytes_of(layer, int(right), itemsize) / bandwidth
        why = f"With {right:,} samples arithmetic takes {arithmetic:.6g} s, memory traffic {memory:.6g} s."
        checks.equal(got, right, name=call, why=why, mistakes={s: v for s, v in told.items() if v != right})


@exercise.check(points=4, needs="each_layer")
def no_batch_helps(student, rng):
    "smallest_batch: math.inf if memory limits the layer at every batch, 1 if it never does."
    depthwise = (9 * 256, 9 * 256 * 196, 2 * 256 * 196)
    cases: list[tuple[Layer, float, float, int, float]]
    cases = [(depthwise, 112e12, 900e9, 2, INFINITY), ((0, 0, 100), 4.0, 2.0, 4, INFINITY)]
    cases += (((1, 1000, 1), 2.0, 4.0, 2, 1), ((0, 80, 10), 8.0, 2.0, 4, 1), ((1, 80, 10), 8.0, 2.0, 4, INFINITY))
    cases.append(((0, 160, 10), 8.0, 2.0, 4, 1))
    for _ in range(3):
        m, n, ridge = (whole_number(rng, 2, 90) for _ in range(3))  # below the ridge, at it, above it
        cases += [
            ((n, ridge * m - 1, 2 * m), 4.0 * ridge, 4.0, 1, INFINITY),
            ((n, ridge * m, 2 * m), 4.0 * ridge, 4.0, 1, INFINITY),
        ]
        cases += [
            ((1, 2 * ridge * m + ridge, 2 * m), 4.0 * ridge, 4.0, 1, 1),
            ((0, ridge * m, 2 * m), 4.0 * ridge, 4.0, 1, 1),
        ]
    for layer, peak, bandwidth, itemsize, right in cases:
        got = student.smallest_batch(layer, peak, bandwidth, itemsize)
        call = f"smallest_batch({layer}, {peak:g}, {bandwidth:g}, {itemsize})"
        checks.that(
            checks.is_number(got) and got == right,
            f"{call} is {show.show(got)}, expected {right}.",
            why="With many samples a layer has 2 * MACs operations for itemsize * moved bytes. The weights only add to "
            "the bytes: where that is at or below the ridge, no batch is large enough. A layer without weights has as "
            "many operations for each byte at any batch.",
        )
