"""A rank's share of the samples, distributed again in each epoch. Oracle: counting."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.orders import drawn_again
from autograder.exercises.ready_made import LOADERS

exercise = Exercise(
    "shard_indices",
    points=5,
    minutes=8,
    forbid=LOADERS,
    instead="Distribute the samples yourself: make a permutation that is equal on all ranks, and take this rank's "
    "part.",
)


def shards(student, n: int, size: int, epoch: int = 0, seed: int = 0) -> list[torch.Tensor]:
    """Every rank's shard, each a tensor of indices."""
    found = []
    for rank in range(size):
        name = f"shard_indices({n}, {rank}, {size}, {epoch}, {seed})"
        got = student.shard_indices(n, rank, size, epoch, seed)
        checks.tensor(got, name=name, dtype=torch.int64)
        checks.that(got.dim() == 1, f"{name} has shape {show.shape(got)}, expected one dimension: a list of indices.")
        checks.that(len(got) <= n, f"{name} holds {len(got)} indices, and there are {n} samples.", got=got)
        outside = got[(got < 0) | (got >= n)]
        checks.that(not len(outside), f"{name} holds {outside[:1].tolist()}; samples are 0 to {n - 1}.", got=got)
        found.append(got)
    return found


def number(rng, low: int = 0, high: int = 9) -> int:
    """A number from `low` to `high`, both of them included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def some_split(rng) -> tuple[int, int]:
    return number(rng, 0, 40), number(rng, 1, 6)


def each_once(found: list[torch.Tensor], n: int, setting: str) -> None:
    """Check that shards hold every sample exactly once, as another check asks with its own words."""
    checks.equal(
        torch.cat(found).sort()[0].tolist(), list(range(n)), name=f"{setting}: the samples of all ranks, sorted"
    )


FEW = 3  # steps of equal length: of 15 random ones no more than these differ once in 10^15
SPLITS = ((12, 4), (10, 4), (3, 4), (5, 1), (7, 2), (64, 8))  # n and the number of ranks


@exercise.check(points=2)
def every_sample_once(student, rng):
    "All shards together hold every sample exactly once, even if the number of ranks does not divide n."
    for n, size in (*SPLITS, some_split(rng)):
        found = shards(student, n, size, epoch=number(rng), seed=number(rng))
        counts = torch.cat(found).bincount(minlength=n)
        if bool((counts == 1).all()):
            continue
        wrong = int((counts != 1).nonzero()[0])
        owners = [rank for rank in range(size) if wrong in found[rank].tolist()]
        raise checks.CheckFailure(
            f"n = {n}, {size} ranks: sample {wrong} is in the shards of "
            f"{'no rank' if not owners else 'rank' + 's' * (len(owners) > 1) + ' ' + ', '.join(map(str, owners))}"
            f"{' (more than once)' if len(owners) == 1 else ''}.",
            got=[shard.tolist() for shard in found].__repr__(),
            expected=f"each of 0 to {n - 1} in one shard",
            mistake=sharding_mistake(found, counts, n),
        )


def sharding_mistake(found: list[torch.Tensor], counts: torch.Tensor, n: int) -> str:
    size, total = len(found), sum(map(len, found))
    if size > 1 and all(len(shard) == n for shard in found):
        return "Every rank has all samples: a shard is its part of the permutation."
    if counts.max() == 1 and int((counts == 0).sum()) == n % size:
        return "You leave out the rest: if the number of ranks does not divide n, some shards are one sample longer."
    if counts.min() == 1 and total == size * -(-n // size):
        return "Samples are repeated to make the shards equally long. Here shards may differ by one instead."
    if all(torch.equal(shard.sort()[0], found[0].sort()[0]) for shard in found):
        return "Every rank has the same shard: you ignore rank."
    return (
        "Shards overlap. Does each rank draw a permutation of its own? Seed with seed and epoch, never with the rank."
    )


@exercise.check(points=1, needs="every_sample_once")
def equal_lengths(student, rng):
    "The longest shard has at most one sample more than the shortest."
    for n, size in (*SPLITS, some_split(rng)):
        found = shards(student, n, size, epoch=number(rng))
        lengths = list(map(len, found))
        checks.that(
            max(lengths) - min(lengths) <= 1,
            f"n = {n}, {size} ranks: the shards have {', '.join(map(str, lengths))} samples. All ranks wait for the "
            "rank with the most: spread the remainder, one sample each.",
            got=lengths,
        )
        each_once(found, n, f"n = {n}, {size} ranks")


@exercise.check(points=1, needs="every_sample_once")
def new_each_epoch(student, rng):
    "Each epoch distributes the samples again: in another order, and with different samples for each rank."
    for seed, epoch in ((0, number(rng)), (number(rng), 0)):  # seed * epoch would be 0 again
        _differ(student, seed, epoch, epoch + 1)
    epoch = number(rng)
    _differ(student, number(rng), epoch, epoch + MULTIPLE)
    _few_differ(student, number(rng, 12, 19), number(rng))


MULTIPLE = 2**10 * 9 * 125 * 7  # of 24, 64, 1,000 and many other numbers: as many orders would come again then


def _few_differ(student, n: int, seed: int) -> None:
    """A few samples of two ranks change places, too: six epochs give rank 0 the same by chance in (1/924)^5 = 1e-15."""
    found = [shards(student, n, 2, epoch, seed) for epoch in range(6)]
    for epoch in found:
        each_once(epoch, n, f"n = {n}, 2 ranks, seed {seed}")
    checks.that(
        len({tuple(sorted(first.tolist())) for first, _ in found}) > 1,
        f"Of {n} samples rank 0 has the same in each of six epochs: shuffle them, however few.",
        got=found[0][0],
    )


def _differ(student, seed: int, epoch: int, later: int) -> None:
    """The shards of two epochs are shuffled, and hold different samples."""
    n, size = 64, 4  # that chance gives a rank the same samples twice: 1 in C(64, 16) = 5e14
    first, second = (shards(student, n, size, each, seed) for each in (epoch, later))
    for found in (first, second):
        each_once(found, n, f"n = {n}, {size} ranks, seed {seed}")
    dealt = torch.arange(n)
    unshuffled = [torch.arange(rank, n, size) for rank in range(size)], list(dealt.tensor_split(size))
    for rank in range(size):
        name = f"rank {rank}'s shard of {n} samples"
        plain = any(torch.equal(first[rank], some[rank]) for some in unshuffled)
        plain |= len((first[rank].diff() % n).unique()) <= FEW  # it turns a list, or takes every k-th number
        checks.that(not plain, f"{name} is not shuffled: use a random permutation.", got=first[rank])
        for other, before in enumerate(first):
            whose = "" if other == rank else f" on rank {other}"
            checks.that(
                not torch.equal(before.sort()[0], second[rank].sort()[0]),
                f"{name} holds the same samples in epoch {later} as in epoch {epoch}{whose}, with seed {seed}. "
                "Seed the generator with the epoch, too (seed + epoch), and permute all n samples before you "
                "distribute them.",
                got=f"epoch {epoch}: {show.show(before)}, epoch {later}: {show.show(second[rank])}",
            )
    in_order = [[index for shard in shards for index in shard.tolist()] for shards in (first, second)]
    checks.equal(*map(sorted, in_order), name=f"the {n} samples of one epoch, sorted")
    drawn_again(*in_order[::-1], advice="Draw a permutation for each epoch, by a generator seeded with seed + epoch.")


@exercise.check(points=1, needs="every_sample_once")
def same_permutation_again(student, rng):
    "The same seed and epoch always give the same shards; another seed gives different ones."
    epoch, seed = 0, number(rng)  # in epoch 0 seed * epoch would be the same for all seeds
    first, again = (shards(student, 40, 3, epoch, seed) for _ in range(2))
    other = shards(student, 40, 3, epoch, seed + 1)
    for found in (first, other):
        each_once(found, 40, "n = 40, 3 ranks")
    for rank in range(3):
        checks.equal(
            again[rank], first[rank], name=f"rank {rank}'s shard, asked for again with the same seed and epoch"
        )
        checks.that(
            not torch.equal(other[rank], first[rank]),
            f"In epoch {epoch}, seed {seed} and seed {seed + 1} give the same shards: seed the generator with both, "
            "seed + epoch.",
        )
    size = number(rng, 1, 6)
    drawn = [(number(rng, 20, 80), number(rng, 0, size - 1), size, number(rng), seed) for _ in range(2)]
    runs = [
        student.ranks("shard_indices", 1, lambda _, given=given: given, harness="leaves_chance_alone").results[0]
        for given in ((40, 0, 3, epoch, seed), *drawn)
    ]
    checks.that(
        all(runs),
        "This seeds torch's global generator, or draws from it: other code that draws random numbers, for the weights "
        "or for dropout, gets different ones. Use a generator of your own: torch.Generator().manual_seed(...).",
    )
