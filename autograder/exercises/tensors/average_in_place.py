"""Into the tensors themselves: an all-reduce in one process. Oracle: sums of plain numbers, element by element."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.tensors.drawing import built, whole

exercise = Exercise("average_in_place", points=10, minutes=4)

TOGETHER = {
    "apart": "each in a memory of its own",
    "rows": "rows of one memory",
    "columns": "columns of one memory",
}


def average(xs: list[torch.Tensor]) -> torch.Tensor:
    return built(tuple(xs[0].shape), xs[0].dtype, lambda *at: sum(x[at].item() for x in xs) / len(xs))


def anew_each_time(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What is left if the mean is computed again after each tensor was overwritten."""
    xs = list(xs)
    for i in range(len(xs)):
        xs[i] = average(xs)
    return xs


def total_in_the_first(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What is left if `total = xs[0]` and then each of xs is added to it."""
    total = xs[0] + xs[0] + sum(xs[1:])
    return [total / len(xs)] * len(xs)


def averaged(student, xs: list[torch.Tensor], together: str = "apart") -> None:
    left, memory, met = student.ranks("average_in_place", 1, lambda _: (xs, together), harness="averaging").results[0]
    expected, setting = average(xs), f"{len(xs)} tensors of shape {show.shape(xs[0])}, {TOGETHER[together]}"
    unchanged = (
        "The tensor has not changed. `x = mean` and `xs[i] = mean` give a name or a place in the list to another "
        "tensor; `copy_` and `x[...] =` write into this one's memory."
    )
    for i, got in enumerate(left):
        mistakes = {
            unchanged: xs[i],
            "You compute the mean again after tensors have been overwritten: compute it once, before you overwrite "
            "the first.": (anew_each_time(xs)[i]),
            "`total = xs[0]` is a second name for the first tensor, not a copy: adding to it changes xs[0], which is "
            "then added to itself. Begin with xs[0].clone() or zeros.": total_in_the_first(xs)[i],
            "This is the sum: divide by the number of tensors.": expected * len(xs),
        }
        if len(xs) == 1:
            mistakes = {}
        checks.close(got, expected, name=f"{setting}: xs[{i}]", mistakes=mistakes)
    for i, got in enumerate(memory):
        checks.that(
            checks.same(got, left[i]),
            f"{setting}: the memory of xs[{i}] still holds the old numbers. `x.data = mean` points the name at "
            "another memory, and code that uses the old one, such as a bucket, does not see the mean. "
            "`copy_` writes into the old memory.",
            got=got,
            expected=left[i],
        )
    checks.that(not met, f"{setting}: two of them share one memory now: if you change one, the other changes, too.")


@exercise.check(points=4)
def everyone_has_the_mean(student, rng):
    "Each tensor of the list holds the mean of all, in its own memory."
    for p in (2, 4):
        averaged(student, [whole(rng, 2, 3) for _ in range(p)])


@exercise.check(points=3)
def pieces_of_one_memory(student, rng):
    "Tensors that are rows or columns of one memory, as gradients in a bucket are."
    for together in ("rows", "columns"):
        averaged(student, [whole(rng, 2, 2, dtype=torch.float64) for _ in range(3)], together)


@exercise.check(points=3)
def any_tensors(student, rng):
    "Single numbers, tensors of four axes, many tensors, a list of one."
    averaged(student, [whole(rng) for _ in range(3)])
    averaged(student, [whole(rng, 2, 1, 2, 2) for _ in range(2)])
    averaged(student, [whole(rng, 2) for _ in range(7)])
    averaged(student, [whole(rng, 3)])
