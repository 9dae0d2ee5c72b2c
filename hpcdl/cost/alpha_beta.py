"""Alpha and beta fitted to measurements with outliers: a busy machine only makes messages slower."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog


class Fit(NamedTuple):
    """`alpha` s per message, `beta` s per byte; `error`, the median relative distance of the measurements from them."""

    alpha: float
    beta: float
    error: float


def fit(nbytes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Fit alpha, beta >= 0 so that alpha + beta n is nearest to the measured times of messages of n bytes.

    Nearest means the least sum of |alpha + beta n - t| / t. Errors are relative, so 4 bytes and 64 MB count the same,
    and not squared, so an outlier has little influence (least absolute deviations, solved as a linear program). Pass
    all repeats of one size, without averaging. Raises ValueError for fewer than two sizes or times that are not
    positive.
    """
    sizes = _column("nbytes", nbytes)
    return _least_absolute(np.ones_like(sizes), sizes, _times(seconds, sizes))


def fit_collective(cost: Callable, ranks: Sequence[int] | int, nbytes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Fit the links' alpha and beta to measured times of a whole collective; gamma counts as part of beta.

    `cost` is a formula of `hpcdl.cost.collectives`; times of one p or of several. Raises ValueError like `fit`.
    """
    sizes = _column("nbytes", nbytes)
    counts = np.broadcast_to(ranks, sizes.shape)
    steps, volume = (
        np.array([cost(int(p), int(n), *unit) for p, n in zip(counts, sizes, strict=True)]) for unit in ((1, 0), (0, 1))
    )
    return _least_absolute(steps, volume, _times(seconds, sizes))


def _least_absolute(steps, volume, seconds) -> Fit:
    if np.linalg.matrix_rank(np.stack([steps / steps.max(), volume / max(volume.max(), 1.0)])) < 2:
        raise ValueError("the messages have one size; alpha and beta need two sizes or more, far apart")
    # Unknowns: alpha and beta in units that make both about 1, then one slack per measurement, |model - t| / t.
    scale = np.array([np.median(seconds), np.median(seconds)]) / [np.median(steps), max(np.median(volume), 1.0)]
    model = np.stack([steps, volume], axis=1) * scale / seconds[:, None]
    slack = np.eye(len(seconds))
    solution = linprog(
        np.concatenate([np.zeros(2), np.ones(len(seconds))]),
        A_ub=np.block([[model, -slack], [-model, -slack]]),
        b_ub=np.concatenate([np.ones(len(seconds)), -np.ones(len(seconds))]),
    )
    if not solution.success:
        raise ValueError(f"seconds and nbytes admit no fit: {solution.message}")
    alpha, beta = (solution.x[:2] * scale).tolist()
    error = np.median(np.abs(alpha * steps + beta * volume - seconds) / seconds)
    return Fit(alpha, beta, float(error))


def _column(name, values) -> np.ndarray:
    column = np.asarray(values, dtype=float)
    if column.ndim != 1 or len(column) < 2 or not np.isfinite(column).all() or (column < 0).any():
        raise ValueError(f"{name} is a list of two numbers or more, each finite and 0 or more; got {_shown(values)}")
    return column


def _times(seconds, nbytes) -> np.ndarray:
    times = _column("seconds", seconds)
    if len(times) != len(nbytes):
        raise ValueError(f"seconds has {len(times)} values and nbytes {len(nbytes)}; each measurement needs both")
    if not (times > 0).all():
        raise ValueError(f"seconds has {times.min()}; a message takes more than 0 seconds: measure many and divide")
    return times


def _shown(values) -> str:
    text = repr(values)
    return text if len(text) < 80 else text[:77] + "..."
