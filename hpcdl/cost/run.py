"""A whole training: epochs, evaluations, checkpoints, and machine failures.

Sources: Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher order
estimate of the optimum checkpoint interval for restart dumps".
"""

from math import sqrt
from typing import NamedTuple

from hpcdl.cost.work import check_numbers


def checkpoint_interval(write: float, between_failures: float) -> float:
    """Return the best interval between checkpoints, in seconds of work: sqrt(2 w M) (Young), minus w (Daly's first
    order).

    A checkpoint takes `write` seconds; all machines together fail once in `between_failures` seconds. If writing takes
    at least half of that, the interval is M. Raises ValueError for times that are not positive.

    >>> round(checkpoint_interval(write=60.0, between_failures=3 * 3600.0))
    1078
    """
    _check(write=write, between_failures=between_failures)
    if write >= between_failures / 2:
        return between_failures
    return sqrt(2 * write * between_failures) - write


class TrainingTime(NamedTuple):
    """The seconds of a training by purpose: computing, evaluations, writing checkpoints, work `lost`, and restarts."""

    training: float
    evaluation: float
    checkpoints: float
    lost: float
    restarts: float

    @property
    def seconds(self) -> float:
        """Return the sum of all parts."""
        return sum(self)


def run(
    iteration: float,
    batch: int,
    samples: float,
    epochs: float = 1.0,
    *,
    evaluation: float = 0.0,
    write: float = 0.0,
    between_failures: float = float("inf"),
    restart: float = 0.0,
    interval: float | None = None,
) -> TrainingTime:
    """Return the expected seconds of `epochs` passes over `samples`, with iterations of `batch` samples.

    Each epoch ends with `evaluation` seconds. A checkpoint of `write` seconds comes after each `interval` of work
    (None: the best). All machines together fail once in `between_failures` seconds on average: then half of an interval
    and its checkpoint is lost on average, and a `restart` is added. Raises ValueError for times that are not positive
    (`evaluation`, `write` and `restart` may be 0), and if failures cost more time than there is.

    >>> run(iteration=0.5, batch=100, samples=1e5, epochs=2, evaluation=30.0).seconds
    1060.0
    """
    _check(iteration=iteration, batch=batch)
    check_numbers(samples=samples, epochs=epochs, evaluation=evaluation, write=write, restart=restart)
    training, tests = epochs * iteration * samples / batch, epochs * evaluation
    if between_failures == float("inf") and interval is None:
        return TrainingTime(training, tests, 0.0, 0.0, 0.0)
    if interval is None:
        interval = checkpoint_interval(write, between_failures) if write else iteration
    _check(interval=interval)
    work = training + tests
    checkpoints = write * work / interval
    # A failure every M of T seconds wastes half an interval and its checkpoint, and a restart:
    # T = (work + checkpoints) / (1 - waste / M).
    waste = ((interval + write) / 2 + restart) / between_failures
    if waste >= 1:
        raise ValueError(
            f"between_failures is {between_failures:g} s; a failure costs {waste * between_failures:g} s, so the "
            "training never ends: write checkpoints faster, or restart faster"
        )
    failures = (work + checkpoints) / (1 - waste) / between_failures
    return TrainingTime(training, tests, checkpoints, failures * (interval + write) / 2, failures * restart)


def _check(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value!r}; it is more than 0")
