"""Sparse data like those of HOGWILD!'s experiments, drawn from a seed: nothing to download."""

from dataclasses import dataclass

import numpy as np
import torch

RCV1_FEATURES, RCV1_NONZEROS = 47_236, 76  # words, and words per text on average (Lewis et al. 2004, RCV1-v2)


@dataclass(frozen=True)
class SparseRows:
    """n rows in compressed form: row i has `values[starts[i]:starts[i+1]]` at `columns[...]`, and the label `y[i]`.

    starts (n+1,) int64 · columns int32, increasing in a row · values float32, each row of length 1 · y (n,) float32,
    -1 or 1 · `features` is the number of columns. Raises ValueError for anything else: compiled loops trust these rows.
    """

    starts: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor
    y: torch.Tensor
    features: int

    def __post_init__(self):
        dtypes = {"starts": torch.int64, "columns": torch.int32, "values": torch.float32, "y": torch.float32}
        for name, dtype in dtypes.items():
            x = getattr(self, name)
            if not isinstance(x, torch.Tensor) or x.dtype != dtype or x.dim() != 1:
                found = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
                raise ValueError(f"{name} is {found}; give one axis of {dtype}, such as {name}.to({dtype})")
        n, stored = len(self.y), len(self.columns)
        if len(self.starts) != n + 1 or self.starts[[0, -1]].tolist() != [0, stored]:
            raise ValueError(
                f"starts has {len(self.starts)} numbers that end with {self.starts[-1:].tolist()}; for {n} labels and "
                f"{stored} columns it has {n + 1}, from 0 to {stored}"
            )
        if len(self.values) != stored:
            raise ValueError(f"values has {len(self.values)} numbers and columns {stored}; each column has one value")
        self._check_columns()
        if bool((self.y.abs() != 1).any()):
            wrong = self.y[self.y.abs() != 1][0].item()
            raise ValueError(f"y has {wrong:g}; labels are -1 and 1: of labels 0 and 1 give 2 * y - 1")

    def _check_columns(self) -> None:
        if bool((self.starts.diff() < 0).any()):
            raise ValueError("starts decreases; row i has the columns from starts[i] to before starts[i + 1]")
        if len(self.columns) and not 0 <= int(self.columns.min()) <= int(self.columns.max()) < self.features:
            raise ValueError(
                f"columns has {int(self.columns.min())} to {int(self.columns.max())}; they are 0 to {self.features - 1}"
            )
        falls = self.columns.diff() <= 0
        firsts = self.starts[(self.starts > 0) & (self.starts < len(self.columns))]
        falls[firsts - 1] = False  # from a row to the next
        if bool(falls.any()):
            raise ValueError("a row's columns do not increase; sort each row, and sum the values of a column")

    def __len__(self) -> int:
        return len(self.y)


def rcv1_like(
    n: int, features: int = RCV1_FEATURES, nonzeros: int = RCV1_NONZEROS, noise: float = 0.05, seed: int = 0
) -> SparseRows:
    """Draw `n` texts of two topics as rows of weighted words; a linear classifier gets about 1 - `noise` of them right.

    Word k is drawn with probability proportional to 1/k (Zipf's law), a text has `nonzeros` words on average, weighted
    by the logarithm of their rarity; labels are the signs of a hidden linear function with a share `noise` flipped.
    Raises ValueError for n, features or nonzeros below 1, more nonzeros than features / 2, or noise outside [0, 0.5).
    """
    if n < 1 or features < 2 or not 1 <= nonzeros <= features / 2 or not 0 <= noise < 0.5:
        raise ValueError(
            f"n is {n}, features {features}, nonzeros {nonzeros}, noise {noise}; n and nonzeros are 1 or more, "
            "features at least twice nonzeros, noise from 0 to below 0.5"
        )
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, features + 1)
    share /= share.sum()
    rows, columns = _words(random, n, share, nonzeros)
    values = -np.log(share[columns])  # inverse document frequency: rare words weigh more
    values /= np.sqrt(np.bincount(rows, values**2, minlength=n))[rows]
    y = _labels(random, np.bincount(rows, values * random.standard_normal(features)[columns], minlength=n), noise)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return SparseRows(
        torch.from_numpy(starts),
        torch.from_numpy(columns.astype(np.int32)),
        torch.from_numpy(values.astype(np.float32)),
        torch.from_numpy(y),
        features,
    )


def _words(random: np.random.Generator, n: int, share: np.ndarray, nonzeros: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of every word of every text, sorted, each pair once."""
    draws = _draws_for(share, nonzeros)
    lengths = 1 + random.poisson(draws - 1, size=n)
    rows = np.repeat(np.arange(n), lengths)
    columns = np.minimum(np.searchsorted(np.cumsum(share), random.random(len(rows))), len(share) - 1)
    pairs = np.unique(rows * len(share) + columns)
    return pairs // len(share), pairs % len(share)


def _draws_for(share: np.ndarray, nonzeros: int) -> float:
    """How many words to draw so that `nonzeros` different ones are expected: the sum of 1 - (1 - share)^draws."""
    low, high = float(nonzeros), float(nonzeros)
    while _different(share, high) < nonzeros:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _different(share, middle) < nonzeros else (low, middle)
    return high


def _different(share: np.ndarray, draws: float) -> float:
    return -np.expm1(draws * np.log1p(-np.minimum(share, 1 - 1e-12))).sum()


def _labels(random: np.random.Generator, scores: np.ndarray, noise: float) -> np.ndarray:
    turned = random.random(len(scores)) < noise
    return np.where((scores > np.median(scores)) ^ turned, 1, -1).astype(np.float32)
