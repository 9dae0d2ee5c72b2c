"""Wrong answers to `windows`."""

import torch

from autograder.bank.slips import answers_to

wrong, _ = answers_to("tensors.windows")


@wrong("windows next to each other", fails=("windows_overlap", "edges", "views_of_any_memory"), says="do not overlap")
def windows(x, size, step):
    return x.reshape(*x.shape[:-1], -1, size)


@wrong(
    "the last window is lost",
    fails=("windows_overlap", "edges", "views_of_any_memory"),
    says="The last window is missing",
)
def windows(x, size, step):
    starts = range(0, x.shape[-1] - size, step)
    return torch.stack([x[..., start : start + size] for start in starts], dim=-2)


@wrong(
    "always a step of 1",
    fails=("windows_overlap", "edges", "views_of_any_memory"),
    says="the third argument of unfold is the step",
)
def windows(x, size, step):
    return x.unfold(-1, size, 1)


@wrong(
    "size and step exchanged",
    fails=("windows_overlap", "edges", "views_of_any_memory"),
    says="size and step are exchanged",
)
def windows(x, size, step):
    return x.unfold(-1, step, size)


@wrong("along the first axis", fails=("windows_overlap", "edges", "views_of_any_memory"), says="Is it the last one?")
def windows(x, size, step):
    return x.unfold(0, size, step)


@wrong("slices, stacked", fails="views_of_any_memory", says="repeat, stack, clone")
def windows(x, size, step):
    starts = range(0, x.shape[-1] - size + 1, step)
    return torch.stack([x[..., start : start + size] for start in starts], dim=-2)


@wrong("strides of a contiguous x", fails="views_of_any_memory", says="as if x were stored row after row")
def windows(x, size, step):
    *before, n = x.shape
    strides = torch.empty(x.shape).stride()
    return x.as_strided((*before, (n - size) // step + 1, size), (*strides[:-1], step, 1))


@wrong("from cell 0 of the memory on", fails="views_of_any_memory", says="need not begin at cell 0")
def windows(x, size, step):
    *before, last = x.stride()
    count = (x.shape[-1] - size) // step + 1
    return x.as_strided((*x.shape[:-1], count, size), (*before, step * last, last), 0)
