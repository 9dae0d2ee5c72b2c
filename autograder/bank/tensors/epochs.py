"""Wrong answers to `epochs`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("tensors.epochs")

slip(
    "yield for yield from",
    "yield from order(n).split(size)",
    "yield order(n).split(size)",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="yields each of several in turn",
)


@wrong(
    "one order for all epochs",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="Every epoch has the same order",
)
def epochs(n, size, times, order):
    indices = order(n)
    for _ in range(times):
        yield from indices.split(size)


slip(
    "return ends the loop",
    "yield from order(n).split(size)",
    "return list(order(n).split(size))",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="`return` ends the function",
)


@wrong("all batches in a list", fails="only_when_it_is_needed", says="A list holds all batches at once")
def epochs(n, size, times, order):
    return [batch for _ in range(times) for batch in order(n).split(size)]


slip(
    "draws an order of its own",
    "yield from order(n).split(size)",
    "yield from torch.randperm(n).split(size)",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="never calls order",
)
slip(
    "drops the short last batch",
    "yield from order(n).split(size)",
    "yield from order(n)[: n - n % size].split(size)",
    fails=("batch_after_batch", "any_numbers"),
    says="The short last batch is missing",
)
slip(
    "size batches instead of batches of size",
    "yield from order(n).split(size)",
    "yield from order(n).chunk(size)",
    fails=("batch_after_batch", "any_numbers", "only_when_it_is_needed"),
    says="split, not chunk",
)


@wrong("pieces of about one length", fails="batch_after_batch", says="chunk makes pieces of about one")
def epochs(n, size, times, order):
    for _ in range(times):
        yield from order(n).chunk(-(-n // size))


@wrong(
    "draws all later orders with the second",
    fails="only_when_it_is_needed",
    says="a generator stops at each `yield`",
)
def epochs(n, size, times, order):
    if times:
        yield from order(n).split(size)
    for indices in [order(n) for _ in range(times - 1)]:
        yield from indices.split(size)
