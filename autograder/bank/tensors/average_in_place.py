"""Wrong answers to `average_in_place`."""

from autograder.authoring import wrong


@wrong(
    "tensors.average_in_place",
    "gives a name to the mean",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="give a name or a place in the list to another tensor",
)
def average_in_place(xs):
    mean = sum(xs) / len(xs)
    for x in xs:
        x = mean  # noqa: F841 (the mistake)


@wrong(
    "tensors.average_in_place",
    "replaces the tensors in the list",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="give a name or a place in the list to another tensor",
)
def average_in_place(xs):
    xs[:] = [sum(xs) / len(xs)] * len(xs)


@wrong(
    "tensors.average_in_place",
    "the mean of what is half overwritten",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="compute it once, before you overwrite the first",
)
def average_in_place(xs):
    for x in xs:
        x.copy_(sum(xs) / len(xs))


@wrong(
    "tensors.average_in_place",
    "the first tensor as the total",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="is a second name for the first tensor",
)
def average_in_place(xs):
    total = xs[0]
    for x in xs:
        total += x
    mean = total / len(xs)
    for x in xs:
        x.copy_(mean)


@wrong(
    "tensors.average_in_place",
    "another memory under the name",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="points the name at another memory",
)
def average_in_place(xs):
    mean = sum(xs) / len(xs)
    for x in xs:
        x.data = mean


@wrong(
    "tensors.average_in_place",
    "the sum for the mean",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="divide by the number of tensors",
)
def average_in_place(xs):
    total = sum(xs)
    for x in xs:
        x.copy_(total)
