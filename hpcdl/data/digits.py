"""The handwritten digits that come with scikit-learn: 1,797 real images of 8 x 8 pixels, nothing to download."""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hpcdl.data.seeds import wrapped
from hpcdl.numerics.exact import as_written


class Split(NamedTuple):
    """Training images and held-out images: `x` (N, 1, H, W) float32 in [0, 1], `y` (N,) int64 labels."""

    x: torch.Tensor
    y: torch.Tensor
    x_held_out: torch.Tensor
    y_held_out: torch.Tensor


def digits(size: int = 8, held_out: float = 0.2, seed: int = 0) -> Split:
    """Return the digits, shuffled by `seed`, a fraction `held_out` kept apart; `size` other than 8 resamples them.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998), by way of
    `sklearn.datasets.load_digits`. Raises ValueError for a size below 1 or a fraction outside (0, 1).
    """
    if size < 1:
        raise ValueError(f"size is {size}; an image has 1 pixel or more a side")
    if not 0 < held_out < 1:
        raise ValueError(f"held_out is {held_out}; it is a fraction between 0 and 1, such as 0.2")
    images, labels = _load()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(wrapped(seed)))
    x = images.to(torch.float32)[order].view(-1, 1, 8, 8) / 16
    y = labels.to(torch.int64)[order]
    if size != 8:
        x = torch.nn.functional.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
    cut = round(len(y) * (1 - as_written(held_out)))
    return Split(x[:cut], y[:cut], x[cut:], y[cut:])


def _load() -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels (1797, 64) and labels (1797,), from scikit-learn's file, because importing all of it takes 70 MB on every
    rank."""
    package = find_spec("sklearn")
    assert package  # hpcdl depends on it
    assert package.origin
    table = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not table.exists():  # a version that keeps it elsewhere
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        return torch.from_numpy(images), torch.from_numpy(labels)
    rows = torch.from_numpy(np.loadtxt(table, delimiter=","))
    return rows[:, :-1], rows[:, -1]
