"""A function that hands out one value after the other, and one that is handed in. Oracle: Python lists."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import integer

exercise = Exercise(
    "epochs",
    points=10,
    minutes=4,
    meanings={"chunk expects `chunks`": "size is the number of indices in a batch: split(size)."},
)


class Orders:
    """`order(n)`: a random order of 0 ... n - 1, another one at each call; `given` are those so far."""

    def __init__(self, rng: torch.Generator):
        self.rng, self.given, self.asked, self.__name__ = rng, list[list[int]](), list[int](), "order"

    def __call__(self, n):
        self.asked.append(n)
        self.given.append(torch.randperm(n, generator=self.rng).tolist())
        return torch.tensor(self.given[-1], dtype=torch.int64)


def cut(orders: list, size: int) -> list:
    return [order[start : start + size] for order in orders for start in range(0, len(order), size)]


def batches(student, n: int, size: int, times: int, order) -> list:
    """All batches, as lists of numbers."""
    got, call = student.epochs(n, size, times, order), f"epochs({n}, {size}, {times}, order)"
    checks.that(
        type(got) is list,
        f"{call} gives {type(got).__name__}, expected a generator: a function with `yield` in it, and no `return`.",
        got=got,
    )
    for i, batch in enumerate(got):
        together = type(batch) in (list, tuple)
        checks.that(
            not together,
            f"{call}: item {i} is all batches of an epoch in one {type(batch).__name__}. `yield` yields one value; "
            "`yield from` yields each of several in turn.",
            got=batch,
            expected="a tensor of indices",
        )
        checks.tensor(batch, name=f"{call}: item {i}", dtype=torch.int64)
        checks.that(batch.dim() == 1, f"{call}: item {i} must have one axis, the indices.", got=batch)
    other = next((asked for asked in order.asked if asked != n), n)
    checks.that(
        other == n,
        f"{call} calls order({show.show(other)}): ask for an order of all {n} indices, order(n).",
    )
    return [batch.tolist() for batch in got]


@exercise.check(points=4)
def batch_after_batch(student, rng):
    "Each epoch in an order of its own, from order(n), cut into batches; the last may be short."
    for n, size, times in ((10, 4, 2), (7, 3, 3), (9, 4, 2)):
        order = Orders(rng)
        got = batches(student, n, size, times, order)
        call = f"epochs({n}, {size}, {times}, order)"
        checks.that(
            bool(order.given),
            f"{call} never calls order. It is a function: `order(n)` calls it.",
            got=got,
        )
        given, each = order.given, f"{times} epochs, each in the order of one call of order({n})"
        if len(given) == times and got == cut(given, size):
            continue
        mistakes = {
            "Only one epoch: `return` ends the function in the first pass of the loop; `yield from` continues.": cut(
                given[:1], size
            ),
            "Every epoch has the same order: call order(n) again inside the loop.": cut(given[:1] * times, size),
            "The short last batch is missing.": [batch for batch in cut(given, size) if len(batch) == size],
            "chunk makes pieces of about one length: split(size) cuts off `size` indices each time, and the last "
            "piece may be shorter.": [
                part.tolist() for one in given for part in torch.tensor(one).chunk(-(-n // size))
            ],
            "size is the number of indices in a batch, not the number of batches: split, not chunk.": [
                part.tolist() for one in given for part in torch.tensor(one).chunk(size)
            ],
        }
        raise checks.CheckFailure(
            f"{call} gives {len(got)} batches, and calls order {len(given)} times.",
            got=str(got),
            expected=str(cut(given, size)) if len(given) == times else each,
            mistake=next((sentence for sentence, value in mistakes.items() if got == value), ""),
        )


@exercise.check(points=3)
def any_numbers(student, rng):
    "Batches longer than the data, of one index, and no epoch at all."
    for n, size, times in ((3, 5, 2), (4, 1, 2), (1, 1, 1), (5, 2, 0)):
        order = Orders(rng)
        got = batches(student, n, size, times, order)
        checks.equal(got, cut(order.given, size), name=f"epochs({n}, {size}, {times}, order)")
        checks.equal(len(order.given), times, name=f"the calls of order in epochs({n}, {size}, {times}, order)")


@exercise.check(points=3)
def only_when_it_is_needed(student, rng):
    "An epoch's order is drawn when its first batch is asked for, and not before."
    times, size = 4, 2
    orders = [torch.randperm(6, generator=rng) for _ in range(times)]
    for few in (integer(rng, 1, 3), integer(rng, 4, 11)):
        call = lambda _, few=few: (orders, size, few)  # noqa: E731
        found, before, asked = student.ranks("epochs", 1, call, harness="taken").results[0]
        got = [batch.tolist() for batch in found if type(batch) is torch.Tensor]
        expected = cut([order.tolist() for order in orders], size)[:few]
        checks.equal(got, expected, name=f"the list of the first {few} batches")
        right = [1 + i // 3 for i in range(few)]  # each epoch has three batches
        checks.that(
            before == 0 and asked == right,
            f"After {few} batches of {times} epochs, three to an epoch, order has been called {asked[-1]} times, "
            f"{before} of them before any batch was asked for. A list holds all batches at once; a generator stops at "
            "each `yield` until you ask for the next.",
            got=f"calls after each batch: {asked}",
            expected=f"{right}",
        )
