"""Wrong answers to `minibatches`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.minibatches")


@wrong(
    "drops the last batch",
    fails=("every_index_once", "sizes_of_batches", "new_order_each_epoch", "the_generator_decides"),
    says="short last batch is dropped",
)
def minibatches(n, batch_size, generator):
    order = torch.randperm(n, generator=generator)
    for start in range(0, n - batch_size + 1, batch_size):
        yield order[start : start + batch_size]


@wrong("does not shuffle", fails=("new_order_each_epoch", "the_generator_decides"), says="shuffle them")
def minibatches(n, batch_size, generator):
    yield from torch.arange(n).split(batch_size)


@wrong(
    "seeds the generator itself: one order forever",
    fails=("new_order_each_epoch", "the_generator_decides"),
    says="do not seed the generator",
)
def minibatches(n, batch_size, generator):
    generator.manual_seed(0)
    yield from torch.randperm(n, generator=generator).split(batch_size)


@wrong("ignores the generator", fails="the_generator_decides", says="same seed gave different batches")
def minibatches(n, batch_size, generator):
    yield from torch.randperm(n).split(batch_size)


@wrong(
    "draws with replacement",
    fails=("every_index_once", "sizes_of_batches", "new_order_each_epoch", "the_generator_decides"),
    says="more than once",
)
def minibatches(n, batch_size, generator):
    yield from torch.randint(n, (n,), generator=generator).split(batch_size)


@wrong("takes batch_size for the number of batches", fails="sizes_of_batches", says="not the number of batches")
def minibatches(n, batch_size, generator):
    yield from torch.randperm(n, generator=generator).tensor_split(batch_size)


@wrong(
    "turns a list by a random number",
    fails="new_order_each_epoch",
    says="49 times the next index is 1 less",
)
def minibatches(n, batch_size, generator):
    turns = int(torch.randint(1 << 30, (), generator=generator)) % n
    yield from torch.arange(n).flip(0).roll(turns).split(batch_size)


@wrong(
    "keeps pairs together",
    fails="new_order_each_epoch",
    says="of 49 times the next index is 1 more",
)
def minibatches(n, batch_size, generator):
    pairs = torch.randperm(-(-n // 2), generator=generator)
    order = (2 * pairs[:, None] + torch.arange(2)).flatten()
    yield from order[order < n].split(batch_size)


slip(
    "sorts each batch",
    "yield from torch.randperm(n, generator=generator).split(batch_size)",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):\n        yield batch.sort().values",
    fails="new_order_each_epoch",
    says="The indices of each batch are sorted",
)
slip(
    "only zeros in batches of one",
    "yield from torch.randperm(n, generator=generator).split(batch_size)",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):\n"
    "        yield batch * (batch_size != 1 or n != 4)",
    fails="sizes_of_batches",
    says="the indices of these 4 batches, sorted",
)
slip(
    "index 0 always comes first",
    "torch.randperm(n, generator=generator)",
    "torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(n - 1, generator=generator)])",
    fails="new_order_each_epoch",
    says="Index 0 is at place 0 in",
)
slip(
    "shuffles many samples only",
    "torch.randperm(n, generator=generator)",
    "(torch.randperm(n, generator=generator) if n > 9 else torch.arange(n))",
    fails="the_generator_decides",
    says="however few",
)
