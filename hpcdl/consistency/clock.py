"""When each worker begins and ends each iteration, under a staleness threshold.

Bulk-synchronous training (BSP) is staleness 0, asynchronous training (ASP) is infinity, and stale-synchronous training
(SSP; Ho et al. 2013) is all between: iteration k may begin once every worker has finished iteration k - s - 1.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

BSP, ASP = 0, math.inf


@dataclass(frozen=True, eq=False)
class WorkerTimeline:
    """`start` and `end` of iteration k of worker w, seconds: two arrays (workers, iterations)."""

    start: np.ndarray
    end: np.ndarray

    @property
    def seconds(self) -> float:
        """Return the seconds until the last worker has ended its last iteration."""
        return float(self.end.max(initial=0.0))

    @property
    def waiting(self) -> np.ndarray:
        """Return, for each worker, the share of time until its own end in which it waited for others: (workers,)."""
        busy = (self.end - self.start).sum(axis=1)
        total = self.end.max(axis=1, initial=0.0)
        return 1 - np.divide(busy, total, out=np.ones_like(busy), where=total > 0)

    @property
    def steps_per_second(self) -> float:
        """Return the iterations per second of all workers together, while all of them still have work."""
        until = self.end.max(axis=1).min()
        return float((self.end <= until).sum() / until)

    def leads(self) -> np.ndarray:
        """Return how many iterations ahead of the slowest each worker is when it begins one; at most the staleness.

        Shape (workers, iterations). An iteration that ends when another begins counts as finished.
        """
        own = np.arange(self.start.shape[1])
        finished = np.stack([np.searchsorted(ends, self.start, side="right") for ends in self.end])
        return own - np.minimum(finished.min(axis=0), own)

    def staleness(self) -> np.ndarray:
        """Return tau: how many updates of other workers end between the begin and the end of each iteration.

        Shape (workers, iterations): the age of a gradient's weights when it is applied.
        """
        ends = np.sort(self.end, axis=None)
        before_end = np.searchsorted(ends, self.end, side="left")
        return np.maximum(before_end - np.searchsorted(ends, self.start, side="right"), 0)


def timeline(seconds: Any, staleness: float = ASP) -> WorkerTimeline:
    """Compute when p workers begin and end their iterations; iteration k of worker w takes `seconds[w][k]`.

        start[w][k] = max(end[w][k-1], max over v of end[v][k-s-1]),   end[w][k] = start[w][k] + seconds[w][k]

    `seconds` is a table (p, iterations) that numpy can read, 0 or more; `staleness` s is a whole number from 0 (BSP),
    or infinity (ASP). Raises ValueError for anything else. (Ho et al. 2013, section 3.)
    """
    durations = _table(seconds)
    s = check_staleness(staleness)
    start, end = np.zeros_like(durations), np.zeros_like(durations)
    now = np.zeros(len(durations))
    for k in range(durations.shape[1]):
        if k > s:
            now = np.maximum(now, end[:, k - int(s) - 1].max(initial=0.0))
        start[:, k] = now
        end[:, k] = now = now + durations[:, k]
    return WorkerTimeline(start, end)


def check_staleness(staleness: float) -> float:
    """Return `staleness` if it is an integer from 0 or infinity; otherwise raise ValueError."""
    if isinstance(staleness, bool) or not staleness >= 0 or (staleness != ASP and staleness != int(staleness)):
        raise ValueError(f"staleness is {staleness!r}; it is a whole number, 0 (BSP) or more, or math.inf (ASP)")
    return staleness


def _table(seconds: Any) -> np.ndarray:
    durations = np.asarray(seconds, dtype=np.float64)
    if durations.ndim != 2:
        raise ValueError(f"seconds has shape {durations.shape}; give one row for each worker, as long as the others")
    wrong = np.argwhere(~((durations >= 0) & np.isfinite(durations)))
    if len(wrong):
        w, k = map(int, wrong[0])
        raise ValueError(f"seconds[{w}][{k}] is {durations[w, k]}; an iteration takes 0 or more seconds")
    return durations
