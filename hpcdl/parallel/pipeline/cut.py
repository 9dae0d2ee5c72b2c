"""Split a list of layers into the parts of a pipeline, and a batch into microbatches."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from torch import nn

from hpcdl.parallel.pipeline.tied import find_tied
from hpcdl.parallel.pipeline.values import SequentialPart, Value, like, rows_of, tensors_of
from hpcdl.parallel.schedules import Place
from hpcdl.parallel.shares import shares


def cut_layers(
    layers: Sequence[nn.Module], parts: Sequence[Place], stage: int, limits: Sequence[int] | None = None
) -> list[nn.Sequential]:
    """Cut a network into parts, and return the chunks of `stage`.

    `parts` is where each part is, as `Schedule.parts` gives it. Part g has layers[limits[g] : limits[g + 1]], with
    `limits` as `hpcdl.cost.pipeline.balance` finds them for parts of equal seconds; without, parts have equal numbers
    of layers, or the first parts one more. If several stages have a weight, such as that of an embedding and of the
    head, `run_stage` sums its gradient over them. Raises ValueError for fewer layers than parts.
    """
    if len(layers) < len(parts):
        raise ValueError(f"there are {len(layers)} layers for {len(parts)} parts; each part needs a layer or more")
    if limits is None:
        limits = [0, *accumulate(shares(len(layers), len(parts)))]
    if [*limits] != sorted(set(limits)) or (limits[0], limits[-1], len(limits)) != (0, len(layers), len(parts) + 1):
        raise ValueError(
            f"limits is {list(limits)}; for {len(parts)} parts of {len(layers)} layers these are {len(parts) + 1} "
            f"rising numbers, from 0 to {len(layers)}"
        )
    cut = [SequentialPart(*layers[first:last]) for first, last in pairwise(limits)]
    tied = find_tied([(place[0], part) for place, part in zip(parts, cut, strict=True)])
    chunks: list[nn.Sequential] = []
    for part in sorted((part for part, place in enumerate(parts) if place[0] == stage), key=lambda g: parts[g][1]):
        own = set(cut[part].parameters())
        cut[part].tied_weights = [each for each in tied if each.param in own]  # type: ignore[assignment]
        chunks.append(cut[part])
    return chunks


def cut_batch(x: Value, y: Value, m: int) -> list[tuple[Value, Value]]:
    """Cut a batch into `m` microbatches whose rows differ by one at most.

    `x` and `y` may be tuples or dicts of tensors. Raises ValueError for more microbatches than rows.
    """
    rows, others = rows_of(x), [len(each) for each in (*tensors_of(x, "x"), *tensors_of(y, "y"))]
    if not 1 <= m <= rows or set(others) != {rows}:
        raise ValueError(f"m is {m}, x has {rows} rows and y {rows_of(y)}; x and y have as many, and m is 1 to that")
    return list(zip(_cut(x, m), _cut(y, m), strict=True))


def _cut(value: Value, m: int) -> list[Value]:
    parts = zip(*(x.tensor_split(m) for x in tensors_of(value, "a batch")), strict=True)
    return [like(value, part) for part in parts]
