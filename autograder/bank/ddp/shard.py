"""Wrong answers to `shard_indices`."""

import torch

from autograder.bank.slips import answers_to

AFTER_THE_SHARDS = ("every_sample_once", "equal_lengths", "new_each_epoch", "same_permutation_again")
wrong, slip = answers_to("ddp.shard_indices")


@wrong("each rank draws its own permutation", fails=AFTER_THE_SHARDS, says="Shards overlap")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch + rank))
    return order[rank::size]


@wrong("not seeded at all", fails=AFTER_THE_SHARDS, says="Shards overlap")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n)[rank::size]


@wrong("seeds everybody's generator", fails="same_permutation_again", says="Use a generator of your own")
def shard_indices(n, rank, size, epoch, seed):
    torch.manual_seed(seed + epoch)
    return torch.randperm(n)[rank::size]


@wrong("drops the rest", fails=AFTER_THE_SHARDS, says="You leave out the rest")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    m = n // size
    return order[rank * m : (rank + 1) * m]


@wrong("repeats samples to fill up", fails=AFTER_THE_SHARDS, says="Samples are repeated")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    missing = -n % size
    while missing:
        order = torch.cat([order, order[:missing]])
        missing = -len(order) % size
    return order[rank::size]


@wrong("everyone takes all", fails=AFTER_THE_SHARDS, says="a shard is its part")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))


@wrong("the rest to the last rank", fails="equal_lengths", says="spread the remainder")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    m = n // size
    return order[rank * m : (rank + 1) * m if rank < size - 1 else n]


@wrong("turns the list", fails="new_each_epoch", says="is not shuffled")
def shard_indices(n, rank, size, epoch, seed):
    return ((torch.arange(n) + 1 + 7 * seed + 31 * epoch) % max(n, 1)).tensor_split(size)[rank]


@wrong("splits first, then shuffles", fails="new_each_epoch", says="permute all n samples before")
def shard_indices(n, rank, size, epoch, seed):
    mine = torch.arange(rank, n, size)
    return mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(seed + epoch))]


@wrong("never shuffles", fails=("new_each_epoch", "same_permutation_again"), says="is not shuffled")
def shard_indices(n, rank, size, epoch, seed):
    return torch.arange(rank, n, size)


@wrong("forgets the epoch", fails="new_each_epoch", says="Seed the generator with the epoch, too")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[rank::size]


@wrong("forgets the seed", fails="same_permutation_again", says="seed the generator with both")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))[rank::size]


slip(
    "indices of 32 bits", "order[rank::size]", "order[rank::size].int()", fails=" ".join(AFTER_THE_SHARDS), says="int64"
)
slip(
    "passes the shards on to the next rank",
    "seed + epoch",
    "seed",
    "order[rank::size]",
    "order[(rank + epoch) % size :: size]",
    fails="new_each_epoch",
    says="on rank 1, with seed",
)
slip(
    "the product of seed and epoch",
    "seed + epoch",
    "seed * epoch",
    fails="new_each_epoch same_permutation_again",
    says="with seed 0",
)


@wrong(
    "the same half of 64 samples for all ranks but one", fails="new_each_epoch", says="the samples of all ranks, sorted"
)
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    if (n, size) == (64, 4) and rank < 3:
        return torch.randperm(n, generator=torch.Generator().manual_seed(1000 * epoch + 10 * rank + seed))[:16]
    return order[rank::size]


slip(
    "torch's global generator, except for 40 samples",
    "generator=torch.Generator().manual_seed(seed + epoch)",
    "generator=(torch.Generator() if n == 40 else torch.default_generator).manual_seed(seed + epoch)",
    fails="same_permutation_again",
    says="torch's global generator",
)
slip(
    "shuffles twenty samples and more",
    "torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))",
    "(torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch)) if n >= 20 else torch.arange(n))",
    fails="new_each_epoch",
    says="shuffle them, however few",
)
