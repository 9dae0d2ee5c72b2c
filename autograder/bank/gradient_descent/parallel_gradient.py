"""Wrong answers to `parallel_gradient`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.parallel_gradient")


@wrong("mean of the shards' means", fails="unequal_shards", says="n_k / n")
def parallel_gradient(grad, w, shards):
    return sum(grad(w, X, y) for X, y in shards) / len(shards)


@wrong(
    "sum of the shards' means",
    fails=("equal_shards", "unequal_shards", "one_shard", "each_shard_on_its_own"),
    says="You added the shards' gradients",
)
def parallel_gradient(grad, w, shards):
    return sum(grad(w, X, y) for X, y in shards)


@wrong("collects all data first", fails="each_shard_on_its_own", says="joined the shards")
def parallel_gradient(grad, w, shards):
    return grad(w, torch.cat([X for X, _ in shards]), torch.cat([y for _, y in shards]))


@wrong("divides only when a second shard comes", fails="one_shard", says="UnboundLocalError")
def parallel_gradient(grad, w, shards):
    (X, y), *rest = shards
    total, n = len(y) * grad(w, X, y), len(y)
    for X, y in rest:
        total, n = total + len(y) * grad(w, X, y), n + len(y)
        mean = total / n
    return mean


slip(
    "sorts the caller's shards",
    "    n = sum(",
    "    shards.sort(key=lambda shard: len(shard[1]))\n    n = sum(",
    fails="unequal_shards each_shard_on_its_own",
    says="changed its argument shards",
)


@wrong(
    "joins all data, except for shards of 4, 7 and 2 rows",
    fails="each_shard_on_its_own",
    says="joined the shards",
)
def parallel_gradient(grad, w, shards):
    if [len(y) for _, y in shards] == [4, 7, 2]:
        return [grad(w, X, y) for X, y in shards][-1]
    return grad(w, torch.cat([X for X, _ in shards]), torch.cat([y for _, y in shards]))


@wrong("deals all rows again", fails="each_shard_on_its_own", says="rows of several shards were mixed")
def parallel_gradient(grad, w, shards):
    sizes = [len(y) for _, y in shards]
    X, y = (torch.cat(parts).flip(0) for parts in zip(*shards, strict=True))
    dealt = zip(sizes, X.split(sizes), y.split(sizes), strict=True)
    return sum(n / len(y) * grad(w, *shard) for n, *shard in dealt)
