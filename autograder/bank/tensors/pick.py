"""Wrong answers to `pick`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("tensors.pick")


@wrong(
    "an image for a channel",
    fails=("the_rows_of_one_channel", "any_shape", "a_view"),
    says="This is image c, not channel c",
)
def pick(x, c, i, step):
    return x[c, :, i::step]


@wrong(
    "a slice of length 1 for a number",
    fails=("the_rows_of_one_channel", "any_shape", "a_view"),
    says="A number in its place removes it",
)
def pick(x, c, i, step):
    return x[:, c : c + 1, i::step]


@wrong(
    "columns for rows",
    fails=("the_rows_of_one_channel", "any_shape", "a_view"),
    says="the row is the axis before the last one",
)
def pick(x, c, i, step):
    return x[:, c, :, i::step]


@wrong(
    "one colon: the step as a stop",
    fails=("the_rows_of_one_channel", "any_shape", "a_view"),
    says="the second number is the stop",
)
def pick(x, c, i, step):
    return x[:, c, i:step]


@wrong(
    "every step-th row, then from row i on",
    fails=("the_rows_of_one_channel", "any_shape", "a_view"),
    says="start and step belong in one slice",
)
def pick(x, c, i, step):
    return x[:, c, ::step][:, i:]


@wrong("a list of rows, which copies", fails="a_view", says="lists of indices")
def pick(x, c, i, step):
    return x[:, c, list(range(i, x.shape[2], step))]
