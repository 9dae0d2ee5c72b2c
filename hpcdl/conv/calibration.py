"""Measure candidates: for the rates of the cost model, and on a GPU for the choice itself.

The rates cost a few seconds of measurements, once for each machine; they are kept in the user's cache folder, and
measured again if the processor, torch, Numba, the number of threads or the data type changes. They are measured twice.
Rates are used, but not kept, if the machine is busy: if this process waits for a processor, or if the two measurements
differ. A process that waits measures the processor time of one thread instead: of the seconds that pass, a long call
loses a larger part than a short one. Where the measurements do not end in time, there are no rates for now.
`hpcdl reset speeds` forgets them all.
"""

import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import torch

from hpcdl.conv.algorithm import prepare
from hpcdl.conv.model import MODEL, Situation, candidates, key, works
from hpcdl.conv.problem import Problem
from hpcdl.conv.registry import run
from hpcdl.files import write_whole
from hpcdl.machine import Quiet, processor
from hpcdl.numerics.rounding.threads import one_thread

Seconds = dict[tuple[str, Situation], float]  # of candidates in situations

PASSES = 2  # measurements of all samples, one after the other
ROUNDS = 2  # runs of each sample in a pass, at least
SECONDS = 0.05  # and at least this long
STEADY = 1.2  # how much slower, typically, one pass may be than the other
ON_GPU = 3  # runs
DOUBTED = "wrong"  # the key for when a machine's rates were wrong
DAY = 86400.0  # seconds between two doubts: a problem that the model does not know would cost a calibration each time
AGAIN = 60.0  # seconds until rates from a busy machine are measured again; twice as many each time
NOTICED = 1.0  # seconds until a machine counts as busy: its waits tell little before
LIMIT = 20.0  # seconds after which no more is measured on a busy machine
_due: list[float] = []  # when to measure again, each time that the machine was busy
SAMPLES = (
    Problem(1, 16, 4, 4, 16, 3, 3, padding=1),
    Problem(2, 3, 64, 64, 64, 7, 7, stride=2, padding=3),
    Problem(2, 64, 28, 28, 64, 1, 1),
    Problem(4, 64, 56, 56, 64, 3, 3, padding=1),
    Problem(4, 128, 28, 28, 128, 3, 3, padding=1),
    Problem(2, 256, 28, 28, 256, 3, 3, padding=1),
    Problem(4, 256, 14, 14, 256, 3, 3, padding=1),
    Problem(8, 512, 7, 7, 512, 3, 3, padding=1),
    Problem(4, 48, 28, 28, 128, 5, 5, padding=2),
    Problem(2, 32, 48, 48, 32, 11, 11, padding=5),
    Problem(4, 64, 32, 32, 64, 13, 13, padding=6),
)
NARROW_SAMPLES = (
    Problem(1, 16, 8, 8, 16, 3, 3, padding=1, groups=16),
    Problem(4, 64, 56, 56, 64, 3, 3, padding=1, groups=64),
    Problem(2, 64, 28, 28, 64, 9, 9, padding=4, groups=64),
    Problem(1, 64, 28, 28, 64, 21, 21, padding=10, groups=64),
    Problem(1, 64, 56, 56, 64, 31, 31, padding=15, groups=64),
    Problem(2, 64, 28, 28, 64, 3, 3, padding=1, groups=8),
)


@cache
def rates(dtype: torch.dtype, threads: int) -> dict[str, list[float]] | None:
    """Return the seconds per unit of work of every candidate, from the cache folder, or measured now and stored
    there; None while the machine is too busy to measure them."""
    machine, known = _machine(dtype, threads), _read()
    if machine in known:
        return known[machine]
    quiet = Quiet()
    measured = calibrate(dtype)
    if quiet and measured and not isinstance(measured, Unsteady):
        _write(_read() | {machine: measured})
    else:
        _due.append(time.monotonic() + AGAIN * 2 ** len(_due))
    return measured


def _machine(dtype: torch.dtype, threads: int) -> str:
    return json.dumps([MODEL, processor(), torch.__version__, version("numba"), str(dtype), threads])


def doubt(dtype: torch.dtype, threads: int) -> bool:
    """Forget wrong stored rates, at most once a day, since some problems differ; return whether there were any."""
    machine, known = _machine(dtype, threads), _read()
    doubted = known.get(DOUBTED, {})
    if machine not in known or time.time() < doubted.get(machine, -DAY) + DAY:
        return False
    del known[machine]
    _write(known | {DOUBTED: doubted | {machine: time.time()}})
    rates.cache_clear()
    return True


def renew() -> bool:
    """Forget rates that were measured on a busy machine, and used but not stored, when it is time to measure again;
    return whether there were any."""
    if not _due or time.monotonic() < _due[-1]:
        return False
    _due[-1] = math.inf
    rates.cache_clear()
    return True


def recalibrate() -> bool:
    """Forget all stored rates, so that they are measured again when next needed; return whether there were any."""
    rates.cache_clear()
    _due.clear()
    were = _file().exists()
    with contextlib.suppress(OSError):
        _file().unlink(missing_ok=True)
    return were


class Unsteady(dict):
    """Rates from a busy machine, or from measurements that differ: to be used, but not kept."""


def calibrate(
    dtype: torch.dtype, samples: Iterable[Problem] = SAMPLES + NARROW_SAMPLES, seconds: float = SECONDS
) -> dict[str, list[float]] | None:
    """Measure every candidate on the samples and fit its rates, with the current number of threads.

    The least seconds of all passes count: no short disturbance lasts for two. On a busy machine, the processor time of
    one thread counts. Returns None if that has not been measured after `LIMIT` seconds.
    """
    limit, threads = _Limit(), torch.get_num_threads()
    # With prepared filters, and in the other layout without.
    situations = [Situation(problem, dtype, kept, kept, threads) for problem in samples for kept in (True, False)]
    passes: list[Seconds] = []
    while len(passes) < PASSES and not limit:
        passes.append(_pass(situations, seconds, limit, warm_up=not passes))
    if not limit:
        found = _rates(passes)
        return found if _spread(passes) <= STEADY else Unsteady(found)
    limit.extend()
    with one_thread():
        worked = _pass(situations, seconds, limit, warm_up=False)
    return None if limit else Unsteady(_rates([{which: each / threads for which, each in worked.items()}]))


def _pass(situations: list[Situation], seconds: float, limit: "_Limit", *, warm_up: bool) -> Seconds:
    """Measure the candidates in all situations; fewer if the limit is reached."""
    found: Seconds = {}
    for situation in situations:
        found |= _measure(situation, seconds, limit, warm_up=warm_up)
        if limit:
            break
    return found


def _rates(passes: list[Seconds]) -> dict[str, list[float]]:
    """Fit each candidate's rates to the least seconds of the passes."""
    rows: dict[str, list] = {}
    for name, situation in passes[0]:
        least = min(measured[name, situation] for measured in passes)
        rows.setdefault(key(name, situation.problem), []).append((works(name, situation), least))
    return {name: _fit(measured) for name, measured in rows.items()}


def _spread(passes: list[Seconds]) -> float:
    """Return how many times slower one pass was than another, as the median over candidates and samples."""
    ratios = (max(times) / min(times) for times in zip(*(one.values() for one in passes), strict=True))
    return statistics.median(ratios)


class _Limit:
    """True once a busy machine has measured for `NOTICED` seconds; a slow machine takes the time that it needs."""

    def __init__(self):
        self._quiet, self._begin = Quiet(), time.perf_counter()
        self._reached, self._seconds, self.clock = False, NOTICED, time.perf_counter

    def __bool__(self) -> bool:
        over = time.perf_counter() - self._begin > self._seconds
        self._reached = self._reached or (over and not self._quiet)
        return self._reached

    def extend(self) -> None:
        """Allow `LIMIT` seconds to measure this thread's processor time."""
        self._reached, self._seconds, self.clock = False, LIMIT, time.thread_time


def _measure(situation: Situation, seconds: float, limit: _Limit, *, warm_up: bool) -> Seconds:
    """Return the least seconds of each candidate, run in turns; nothing beyond the limit."""
    calls = _calls(situation, candidates(situation.problem))
    with torch.no_grad():
        for call in calls.values() if warm_up else ():
            if limit:
                return {}
            call()
        times: dict[str, list[float]] = {name: [] for name in calls}
        end = limit.clock() + seconds
        while len(times["torch"]) < ROUNDS or limit.clock() < end:
            for name, call in calls.items():
                if limit:
                    return {}
                times[name].append(_seconds(call, limit.clock))
    return {(name, situation): min(found) for name, found in times.items()}


def _calls(situation: Situation, names: list[str]) -> dict[str, Callable[[], torch.Tensor]]:
    """Return a call of each candidate on random numbers, without changing the user's random state."""
    problem, own = situation.problem, torch.Generator().manual_seed(0)
    shapes = problem.x_shape, problem.w_shape
    x, w = (torch.randn(shape, generator=own).to(situation.device, situation.dtype) for shape in shapes)
    x = x.contiguous(memory_format=torch.channels_last) if situation.channels_last else x
    filters = prepare(w) if situation.prepared else w
    return {name: partial(run, name, x, filters, problem) for name in names}


@torch.no_grad()
def seconds_on_gpu(situation: Situation, names: list[str]) -> dict[str, float]:
    """The least seconds of a few runs of each of the candidates, after one in which kernels are compiled and tuned."""
    calls = _calls(situation, names)
    for call in calls.values():
        call()
    times = {name: [_seconds_of_events(call) for _ in range(ON_GPU)] for name, call in calls.items()}
    return {name: min(found) for name, found in times.items()}


def _seconds_of_events(call: Callable) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def _seconds(call: Callable, clock: Callable[[], float]) -> float:
    begin = clock()
    call()
    return clock() - begin


def _fit(measured: list[tuple[tuple[float, ...], float]]) -> list[float]:
    """Rates >= 0 with the least relative errors."""
    from scipy.optimize import nnls  # slow to import, and used once

    works, seconds = (torch.tensor(part, dtype=torch.float64) for part in zip(*measured, strict=True))
    relative = works / seconds[:, None]
    scale = relative.abs().amax(0).clamp(min=1e-300)
    found, _ = nnls((relative / scale).numpy(), torch.ones_like(seconds).numpy())
    return (torch.from_numpy(found) / scale).tolist()


def _file() -> Path:
    from hpcdl.data.download import cache_folder

    return cache_folder() / "convolution.json"


def _read() -> dict:
    try:
        return json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}


def _write(known: dict) -> None:
    """Write the file atomically; without a place to write, do nothing: rates are then measured again."""
    file = _file()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(known, indent=1))
