"""An epoch in mini-batches: every index once, in a random order. Oracle: counting."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.orders import SHUFFLED, drawn_again, no_fixed_place, shuffled
from autograder.exercises.gradient_descent.drawing import integer
from autograder.exercises.ready_made import LOADERS

exercise = Exercise(
    "minibatches",
    points=5,
    minutes=8,
    forbid=LOADERS,
    instead="Make the batches yourself: cut a permutation of the indices.",
)


def epoch(student, n, batch_size, generator):
    """One epoch as a list of index tensors, after the first rungs of the ladder."""
    batches = student.minibatches(n, batch_size, generator)
    checks.that(
        type(batches) in (list, tuple),
        f"minibatches must yield index tensors (or return a list of them); it gave {type(batches).__name__}.",
        got=batches,
    )
    checks.that(bool(batches), f"There is no batch, and there are {n} indices.", got=batches)
    for k, batch in enumerate(batches):
        checks.tensor(batch, name=f"batch {k}", dtype=torch.int64)
        checks.that(batch.dim() == 1, f"batch {k} must have one dimension, the indices.", got=batch)
    return list(batches)


@exercise.check(points=2)
def every_index_once(student, rng):
    "In one epoch every index comes exactly once."
    for n, batch_size in ((12, 4), (10, 3), (5, 1), (3, 8), (1, 1)):
        batches = epoch(student, n, batch_size, torch.Generator().manual_seed(integer(rng, 0, 2**31)))
        seen = torch.cat(batches).tolist()
        missing, extra = sorted(set(range(n)) - set(seen)), checks.duplicates(seen)
        call = f"n = {n}, batch_size = {batch_size}"
        checks.that(
            not set(seen) - set(range(n)),
            f"{call}: an index is outside 0 .. {n - 1}.",
            got=sorted(seen),
            expected=list(range(n)),
        )
        checks.that(
            not extra,
            f"{call}: index {extra[0] if extra else ''} comes more than once. Draw without replacement: randperm.",
            got=sorted(seen),
            expected=list(range(n)),
        )
        if n % batch_size and len(seen) == n - n % batch_size:
            hint = f"The short last batch is dropped: in this epoch {n % batch_size} of the samples would not be seen."
        else:
            hint = f"index {missing[0] if missing else ''} is missing."
        checks.that(not missing, f"{call}: {hint}", got=sorted(seen), expected=list(range(n)))


@exercise.check(points=1)
def sizes_of_batches(student, rng):
    "Every batch has batch_size indices, the last one the rest."
    for n, batch_size, sizes in (
        (12, 4, [4, 4, 4]),
        (9, 4, [4, 4, 1]),
        (10, 3, [3, 3, 3, 1]),
        (3, 8, [3]),
        (4, 1, [1] * 4),
    ):
        batches = epoch(student, n, batch_size, torch.Generator().manual_seed(integer(rng, 0, 2**31)))
        checks.equal(
            [len(batch) for batch in batches],
            sizes,
            name=f"batch sizes for n = {n}, batch_size = {batch_size}",
            mistakes={
                "You dropped the short last batch: keep it, its samples count too.": [batch_size] * (n // batch_size),
                "The batches are equally long: all but the last have batch_size indices (split, not chunk).": [
                    len(part) for part in torch.arange(n).chunk(-(-n // batch_size))
                ],
                "batch_size is the number of samples in a batch, not the number of batches.": [
                    len(part) for part in torch.arange(n).tensor_split(batch_size)
                ],
            },
        )
        indices = sorted(torch.cat(batches).tolist())
        checks.equal(indices, list(range(n)), name=f"the indices of these {len(sizes)} batches, sorted")


@exercise.check(points=1, needs="every_index_once")
def new_order_each_epoch(student, rng):
    "The order is random, and different in the next epoch."
    generator = torch.Generator().manual_seed(integer(rng, 0, 2**31))
    n = SHUFFLED
    batches = epoch(student, n, 8, generator)
    first, second = (torch.cat(each).tolist() for each in (batches, epoch(student, n, 8, generator)))
    checks.that(
        first != list(range(n)),
        "The indices come in their own order 0, 1, 2, ...: shuffle them, with torch.randperm and the generator.",
        got=first,
    )
    checks.that(
        not all(bool((batch.diff() == 1).all()) for batch in batches),
        "Each batch is a run of neighbours: shuffle the indices before you cut them, not the batches.",
        got=batches[0],
    )
    whole = torch.cat(epoch(student, n, n, generator)).tolist()
    checks.that(
        whole != sorted(whole),
        "The indices of each batch are sorted: the random order is theirs, too.",
        got=whole,
    )
    for order in (first, second, whole):
        checks.equal(sorted(order), list(range(n)), name="the indices of one epoch, sorted")
        shuffled(order, advice="Take a random permutation of all n indices: torch.randperm.")
    checks.that(
        first != second,
        "Two epochs had the same order: draw a new permutation at each call, and do not seed the generator yourself.",
        got=second[:10],
    )
    for order, before in ((second, first), (whole, second), (whole, first)):
        drawn_again(order, before, advice="Draw a permutation in each epoch: torch.randperm with the generator.")
    later = [torch.cat(epoch(student, n, 8, generator)).tolist() for _ in range(3)]
    for order in later:
        checks.equal(sorted(order), list(range(n)), name="the indices of one epoch, sorted")
    no_fixed_place([first, second, whole, *later], advice="Take a random permutation of all n indices: torch.randperm.")


@exercise.check(points=1, needs="every_index_once")
def the_generator_decides(student, rng):
    "The same generator gives the same batches, another seed gives others."
    seed = integer(rng, 0, 2**31)
    a, b, c = (
        torch.cat(epoch(student, 40, 7, torch.Generator().manual_seed(s))).tolist() for s in (seed, seed, seed + 1)
    )
    checks.that(
        a == b,
        "Two generators with the same seed gave different batches: pass it on, torch.randperm(n, generator=generator), "
        "so that a run can be repeated.",
    )
    checks.that(
        a != c, "Generators with different seeds gave the same batches: the order must come from the generator."
    )
    for order in (a, c):
        checks.equal(sorted(order), list(range(40)), name="the indices of one epoch, sorted")
    n = integer(rng, 6, 9)  # the same three times by chance: (1/6!)^2 / 4 = 5e-7
    orders = [torch.cat(epoch(student, n, 3, torch.Generator().manual_seed(seed + k))).tolist() for k in range(3)]
    checks.that(
        any(order != orders[0] for order in orders),
        "Generators with different seeds gave the same order of a few samples: shuffle them, however few.",
        got=orders[0],
    )
