"""A list of layers cut into the parts of a pipeline, and a batch into microbatches."""

from collections.abc import Sequence

import torch
from torch import nn

from hpcdl.parallel.schedules import Place
from hpcdl.parallel.shares import shares


def cut_layers(layers: Sequence[nn.Module], parts: Sequence[Place], stage: int) -> list[nn.Sequential]:
    """The chunks of `stage`: as many layers for each part as can be, the first parts one more where they do not divide.

    `parts` is where each part is, as `Schedule.parts` gives it; for parts of equal seconds cut by
    `hpcdl.cost.pipeline.balance`. Raises ValueError for fewer layers than parts.
    """
    if len(layers) < len(parts):
        raise ValueError(f"there are {len(layers)} layers for {len(parts)} parts; each part needs a layer or more")
    sizes, chunks = shares(len(layers), len(parts)), []
    for part in sorted((part for part, place in enumerate(parts) if place[0] == stage), key=lambda g: parts[g][1]):
        first = sum(sizes[:part])
        chunks.append(nn.Sequential(*layers[first : first + sizes[part]]))
    return chunks


def cut_batch(x: torch.Tensor, y: torch.Tensor, m: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`m` microbatches whose rows differ by one at most; ValueError for more microbatches than rows."""
    if not 1 <= m <= len(x) or len(x) != len(y):
        raise ValueError(f"m is {m}, x has {len(x)} rows and y {len(y)}; x and y have as many, and m is 1 to that")
    return list(zip(x.tensor_split(m), y.tensor_split(m), strict=True))
