"""Wrong answers to `epochs`."""

import torch

from autograder.authoring import wrong


@wrong(
    "tensors.epochs",
    "yield for yield from",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="yields each of several in turn",
)
def epochs(n, size, times, order):
    for _ in range(times):
        yield order(n).split(size)


@wrong(
    "tensors.epochs",
    "one order for all epochs",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="Every epoch has the same order",
)
def epochs(n, size, times, order):
    indices = order(n)
    for _ in range(times):
        yield from indices.split(size)


@wrong(
    "tensors.epochs",
    "return ends the loop",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="`return` ends the function",
)
def epochs(n, size, times, order):
    for _ in range(times):
        return list(order(n).split(size))


@wrong(
    "tensors.epochs", "all batches in a list", fails="only_when_it_is_needed", says="A list holds all batches at once"
)
def epochs(n, size, times, order):
    return [batch for _ in range(times) for batch in order(n).split(size)]


@wrong(
    "tensors.epochs",
    "draws an order of its own",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="never calls order",
)
def epochs(n, size, times, order):
    for _ in range(times):
        yield from torch.randperm(n).split(size)


@wrong(
    "tensors.epochs",
    "drops the short last batch",
    fails=("batch_after_batch", "any_numbers"),
    says="The short last batch is missing",
)
def epochs(n, size, times, order):
    for _ in range(times):
        yield from order(n)[: n - n % size].split(size)


@wrong(
    "tensors.epochs",
    "size batches instead of batches of size",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="split, not chunk",
)
def epochs(n, size, times, order):
    for _ in range(times):
        yield from order(n).chunk(size)


@wrong(
    "tensors.epochs", "pieces of about one length", fails="batch_after_batch", says="chunk makes pieces of about one"
)
def epochs(n, size, times, order):
    for _ in range(times):
        yield from order(n).chunk(-(-n // size))


@wrong(
    "tensors.epochs",
    "draws all later orders with the second",
    fails="only_when_it_is_needed",
    says="a generator stops at each `yield`",
)
def epochs(n, size, times, order):
    if times:
        yield from order(n).split(size)
    for indices in [order(n) for _ in range(times - 1)]:
        yield from indices.split(size)
