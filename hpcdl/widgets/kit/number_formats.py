"""What the pictures of number formats share: the formats to choose from, and every number that one has."""

from functools import cache

import numpy as np
import torch

from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed, Format, decode

FORMATS: dict[str, Format] = {
    "fixed point ⟨4, 4⟩": Fixed(4, 4),
    "fixed point ⟨4, 12⟩": Fixed(4, 12),
    "FP8 E4M3": FP8_E4M3,
    "FP8 E5M2": FP8_E5M2,
    "bfloat16": BF16,
    "float16": FP16,
}


@cache
def numbers(fmt: Format) -> np.ndarray:
    """Return every finite number of a format of at most 16 bits, ascending, float64."""
    words = torch.arange(1 << 8 * fmt.dtype.itemsize)
    words = words.to(torch.uint8 if fmt.dtype.itemsize == 1 else torch.int16).view(fmt.dtype)
    values = decode(words, fmt).double()
    inside = values.isfinite() & (values >= fmt.min) & (values <= fmt.max)
    return np.unique(values[inside].numpy())


def spacing(x: float, fmt: Format) -> float:
    """Return the distance of the numbers around x."""
    return float(fmt.quantum(torch.tensor([x]))[0])
