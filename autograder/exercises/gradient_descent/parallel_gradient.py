"""The gradient of all data from the gradients of shards. Oracle: the gradient on all rows at once."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal
from autograder.exercises.gradient_descent.drawing import integer, small

exercise = Exercise("parallel_gradient", points=10, minutes=6)


class ShardGradient:
    """The trusted mean gradient of a logistic loss on the rows it is given; remembers each call's data."""

    def __init__(self, w):
        self.w, self.given, self.__name__ = w, [], "grad"

    def __call__(self, w, X=None, y=None):
        checks.that(y is not None, "grad takes the weights and one shard's data: grad(w, X, y).")
        checks.unchanged(w, self.w, name="w")
        self.given.append((X.clone(), y.clone()))
        return X.T @ (torch.sigmoid(X @ w) - y) / len(y)


def sharded(student, rng, sizes, dtype=F64):
    """The student's gradient over shards of these sizes, the full one, the shards' own, and `ShardGradient`, asked."""
    n, d, draw = sum(sizes), 2 if sum(sizes) < 9 else 3, small if sum(sizes) < 9 else normal
    w, X = draw(rng, d, dtype=dtype), draw(rng, n, d, dtype=dtype)
    y = torch.randint(0, 2, (n,), generator=rng).to(dtype)
    shards = list(zip(X.split(sizes), y.split(sizes), strict=True))
    grad = ShardGradient(w.clone())
    given, before = list(shards), [(rows.clone(), labels.clone()) for rows, labels in shards]
    got = student.parallel_gradient(grad, w, given)
    checks.that(
        len(given) == len(shards),
        f"Of {len(shards)} shards {len(given)} are left in the caller's list: read it, and do not change it.",
    )
    checks.unchanged([tuple(shard) for shard in given], before, name="shards")
    exact = ShardGradient(w)
    return got, exact(w, X, y), torch.stack([exact(w, *shard) for shard in before]), grad, before


def shard_mistakes(parts, sizes):
    weighted = (parts * torch.tensor(sizes, dtype=parts.dtype)[:, None]).sum(0)
    return {
        "You averaged the shards' gradients as if all had the same size: weight each by its rows, n_k / n.": (
            parts.mean(0)
        ),
        "You added the shards' gradients: each is a mean over its shard, so weight it by n_k / n.": parts.sum(0),
        "You weighted by n_k and did not divide by n, the number of all rows.": weighted,
    }


@exercise.check(points=2)
def equal_shards(student, rng):
    "Equal shards give the gradient of the whole batch."
    got, full, parts, *_ = sharded(student, rng, [2, 2, 2])
    mistakes = shard_mistakes(parts, [2] * 3)
    del mistakes[next(iter(mistakes))]  # on equal shards the plain mean is right
    checks.close(got, full, name="gradient", mistakes=mistakes)


@exercise.check(points=4)
def unequal_shards(student, rng):
    "Unequal shards, tiny ones among them, give exactly the gradient of the whole batch."
    many, few = ([integer(rng, 1, most) for _ in range(count)] for count, most in ((4, 17), (5, 9)))
    for sizes, dtype in (([integer(rng, 3, 5), 1], F64), ([17, 1, *many], F64), ([1, 2, *few], F32)):
        got, full, parts, *_ = sharded(student, rng, sizes, dtype)
        checks.close(got, full, name=f"gradient over shards of {sizes} rows", mistakes=shard_mistakes(parts, sizes))


@exercise.check(points=1, needs="equal_shards")
def one_shard(student, rng):
    "One shard is the ordinary gradient."
    got, full, *_ = sharded(student, rng, [6])
    checks.close(got, full, name="gradient")


@exercise.check(points=3, needs="equal_shards")
def each_shard_on_its_own(student, rng):
    "grad is called once per shard: no processor ever sees another one's data."
    for _ in range(4):
        sizes = [integer(rng, 1, 9) for _ in range(integer(rng, 2, 5))]
        got, full, parts, grad, shards = sharded(student, rng, sizes)
        rows = [len(y) for _, y in grad.given]
        checks.that(
            sum(sizes) not in rows,
            "You joined the shards and took one gradient, so one processor needs all the data. Call grad on each shard "
            "and combine the results.",
            got=f"calls with {rows} rows",
            expected=f"calls with {sizes} rows",
        )
        checks.equal(sorted(rows), sorted(sizes), name="rows in the calls of grad")
        for k, shard in enumerate(shards):
            checks.that(
                any(checks.same(shard, given) for given in grad.given),
                f"No call of grad had the rows of shards[{k}]: rows of several shards were mixed, so a processor sees "
                "another one's data. Call grad on each shard as it is, grad(w, X, y).",
                got=[X for X, _ in grad.given],
                expected=shard[0],
            )
        if not any(checks.alike(got, wrong) for wrong in shard_mistakes(parts, sizes).values()):
            checks.close(got, full, name=f"gradient over shards of {sizes} rows, from a call of grad for each")
