"""Wrong answers to `average_in_place`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("tensors.average_in_place")

slip(
    "gives a name to the mean",
    "x.copy_(mean)",
    "x = mean  # noqa: F841 (the mistake)",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="give a name or a place in the list to another tensor",
)


@wrong(
    "replaces the tensors in the list",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="give a name or a place in the list to another tensor",
)
def average_in_place(xs):
    xs[:] = [sum(xs) / len(xs)] * len(xs)


@wrong(
    "the mean of what is half overwritten",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="compute it once, before you overwrite the first",
)
def average_in_place(xs):
    for x in xs:
        x.copy_(sum(xs) / len(xs))


slip(
    "the first tensor as the total",
    "mean = sum(xs) / len(xs)",
    "total = xs[0]\n    for x in xs:\n        total += x\n    mean = total / len(xs)",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="is a second name for the first tensor",
)
slip(
    "another memory under the name",
    "x.copy_(mean)",
    "x.data = mean",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="points the name at another memory",
)


@wrong(
    "the sum for the mean",
    fails=("everyone_has_the_mean", "pieces_of_one_memory", "any_tensors"),
    says="divide by the number of tensors",
)
def average_in_place(xs):
    total = sum(xs)
    for x in xs:
        x.copy_(total)
