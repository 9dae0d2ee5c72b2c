"""More workers: the error of synchronous and asynchronous SGD by iterations and by time, measured beside its rate.

Each worker estimates the mean, 0, of numbers with standard deviation 1 by SGD with rate 1/i: the error is the root of
the mean square over `RUNS` seeded runs. The rates are 1/sqrt(N I) and 1/sqrt(I).
"""

import heapq
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
from matplotlib.axes import Axes

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import MEASURED, MODEL, model_or_measured, shows, slider
from hpcdl.widgets.kit.explorable import Explorable

RUNS, GRADIENTS = 150, 1024
START = 1.0  # all weights at first


def explorable() -> Explorable:
    """How many workers, how slow the slowest is, and the error that is wanted."""
    controls = {
        "workers": slider("workers N", 8, 1, 32),
        "slow": slider("slowest worker, s", 1.0, 1.0, 8.0, 0.5),
        "error": slider("error wanted", 0.1, 0.05, 0.5, 0.01),
        "kind": model_or_measured(),
    }
    return Explorable(draw, controls, (9.6, 4.2), layout=[["iterations", "seconds"]])


@cache
def samples() -> np.ndarray:
    """Return the samples (GRADIENTS, RUNS), the same in every picture."""
    return np.random.default_rng(0).standard_normal((GRADIENTS, RUNS))


def synchronous(workers: int, slow: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the time and the error after each iteration: all workers' gradients at the same weights, averaged.

    With rate 1/i, the weights are the mean of all samples so far.
    """
    means = np.cumsum(samples(), axis=0) / np.arange(1, GRADIENTS + 1)[:, None]
    errors = np.sqrt((means**2).mean(axis=1))[workers - 1 :: workers]
    return slow * np.arange(1, len(errors) + 1), errors


@lru_cache(maxsize=64)
def asynchronous(workers: int, slow: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the time and the error after each update: one worker's gradient, at the weights that it read last.

    Every worker needs 1 s for a gradient, the last one `slow` seconds.
    """
    seconds = seconds_of(workers, slow)
    weights = np.full(RUNS, START)
    read, ends = [weights] * workers, [(each, k) for k, each in enumerate(seconds)]
    heapq.heapify(ends)
    times, errors = np.empty(GRADIENTS), np.empty(GRADIENTS)
    for i, sample in enumerate(samples()):
        times[i], k = ends[0]
        weights = weights - (read[k] - sample) / (i + 1)
        read[k] = weights
        heapq.heapreplace(ends, (times[i] + seconds[k], k))
        errors[i] = np.sqrt(weights @ weights / RUNS)
    return times, errors


def seconds_of(workers: int, slow: float) -> list[float]:
    return [1.0] * (workers - 1) + [slow]


def reached(times: np.ndarray, errors: np.ndarray, error: float) -> float | None:
    """Return the time from which on the error is at most `error`; None if it never is."""
    above = np.flatnonzero(errors > error)
    first = above[-1] + 1 if len(above) else 0
    return times[first] if first < len(errors) else None


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    """Errors by iteration at the left and by seconds at the right, measured (full) and by their rates (dashed)."""
    workers, slow, error = state["workers"], state["slow"], state["error"]
    runs = {"synchronous": synchronous(workers, slow), "asynchronous": asynchronous(workers, slow)}
    for (name, (times, errors)), color in zip(runs.items(), (style.BLUE, style.ORANGE), strict=True):
        counts = np.arange(1, len(errors) + 1)
        rate = 1 / np.sqrt(counts * (workers if name == "synchronous" else 1))
        for where, x in (("iterations", counts), ("seconds", times)):
            if shows(state, MEASURED):
                axes[where].loglog(x, errors, color=color, label=f"{name}, measured")
            if shows(state, MODEL):
                axes[where].loglog(x, rate, "--", color=color, linewidth=1.4, label=f"{name}, rate")
    for name, shown in axes.items():
        shown.axhline(error, color=style.GREY, linewidth=1, linestyle=":")
        shown.set(ylim=(0.02, 8), ylabel="error (root mean square)")
        style.decades(shown.yaxis)
        shown.set_xlim(1, GRADIENTS if name == "iterations" else max(GRADIENTS * slow / workers, 40))
    axes["iterations"].set(xlabel="iterations (asynchronous: updates)", title="By iterations")
    axes["seconds"].set(xlabel="seconds", title="By time")
    axes["seconds"].legend(loc="upper right", fontsize=10)
    ends = {name: reached(*run, error) for name, run in runs.items()}
    took = " and ".join(f"{name} after {end:.4g} s" if end else f"{name} not yet" for name, end in ends.items())
    gradients = int(np.ceil(round(1 / error**2, 6)))
    promised = slow * np.ceil(gradients / workers), runs["asynchronous"][0][gradients - 1]
    many = f"{workers} worker{'s' * (workers > 1)}"
    return (
        f"Error {error:.2f}, {many}: by the rates {promised[0]:.4g} s synchronous, {promised[1]:.4g} s asynchronous; "
        f"measured {took}."
    )
