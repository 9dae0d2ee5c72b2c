"""Wrong answers to `by_channel`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("tensors.by_channel")


@wrong(
    "reshape alone cuts in the order of memory",
    fails=("a_row_for_each_channel", "any_memory"),
    says="a row of yours mixes channels",
)
def by_channel(x):
    return x.reshape(x.shape[1], -1)


@wrong(
    "view of what is not contiguous",
    fails=("a_row_for_each_channel", "any_memory"),
    says="no strides describe this result",
)
def by_channel(x):
    return x.transpose(0, 1).view(x.shape[1], -1)


@wrong(
    "columns before rows",
    fails=("a_row_for_each_channel", "any_memory", "copies_only_where_it_must"),
    says="height comes before width",
)
def by_channel(x):
    return x.permute(1, 0, 3, 2).reshape(x.shape[1], -1)


@wrong("images last", fails=("a_row_for_each_channel", "any_memory"), says="The images alternate pixel by pixel")
def by_channel(x):
    return x.permute(1, 2, 3, 0).reshape(x.shape[1], -1)


@wrong(
    "forgets to make one axis of three",
    fails=("a_row_for_each_channel", "any_memory", "copies_only_where_it_must"),
    says="are still apart",
)
def by_channel(x):
    return x.transpose(0, 1)


@wrong("copies always", fails="copies_only_where_it_must", says="copied into a memory of their own")
def by_channel(x):
    return x.transpose(0, 1).clone().flatten(1)
