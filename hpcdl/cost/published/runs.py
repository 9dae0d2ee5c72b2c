"""Published runs of transformers, each as a function of the device's rates, so that constants can be fitted without it.

One constant for each device (`Machine.matrix`), one for fp32 without tensor cores (`machines.VECTOR`) and one for all
memories (`machines.MEMORY`) are fitted to these runs together. `leave_out` fits them again without a run's source, or
without only the run if the constant has a single source.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import log
from typing import NamedTuple

from hpcdl.cost.machines import FITTED_SHARE, MACHINES, MEMORY, Machine

MATRICES = tuple(round(0.2 + 0.02 * n, 2) for n in range(34))  # 0.2 to 0.86
MEMORIES = (0.6, 0.65, 0.7)


class PublishedRun(NamedTuple):
    """A published figure, and `value`: the machine, as a program sees it, to our figure in the same unit."""

    source: str
    what: str
    published: float
    unit: str
    kind: str
    device: str  # a name of `machines.MACHINES`
    value: Callable[[Machine], float]
    precision: str = "fp16"

    @property
    def constant(self) -> str:
        """Return the constant that is fitted to it: its device's, that of Pascal (P100 and P40), or none.

        To transformers tensor cores' constants are fitted, and to Pascal and Kepler those without tensor cores.
        """
        if self.kind == "layers":
            return {"P100": "Pascal", "P40": "Pascal", "K80": "K80"}.get(self.device, "")
        return self.device

    @property
    def matrix(self) -> float:
        """Return the constant's value."""
        machine = MACHINES[self.device]
        return machine.vector if self.precision == "fp32" else machine.matrix

    def predicted(self, matrix: float | None = None, memory: float = MEMORY) -> float:
        """Return our figure, with other constants of the device if given."""
        return self.value(MACHINES[self.device].reaching(matrix or self.matrix, memory, FITTED_SHARE))

    def error(self, matrix: float | None = None, memory: float = MEMORY) -> float:
        """Return the logarithm of predicted over published."""
        return log(self.predicted(matrix, memory) / self.published)


def fit(runs: Sequence[PublishedRun], memory: float | None = None) -> tuple[float, float]:
    """Fit `matrix` and `memory` with the least sum of absolute errors, with equal weight for each source."""
    memories = MEMORIES if memory is None else (memory,)
    return min(((x, y) for x in MATRICES for y in memories), key=lambda pair: _misses(tuple(runs), *pair))


def _misses(runs, matrix, memory) -> float:
    sources = {run.source for run in runs}
    return sum(
        sum(errors) / len(errors)
        for source in sources
        if (errors := [abs(_error(run, matrix, memory)) for run in runs if run.source == source])
    )


@cache
def _error(run: PublishedRun, matrix: float, memory: float) -> float:
    return run.error(matrix, memory)


def leave_out(runs: Sequence[PublishedRun]) -> dict[tuple[str, str], float]:
    """Map (source, what) to the logarithm of predicted over published, with constants fitted without that source.

    The memory's share is fitted with the A100's runs, where most figures are, and kept for other devices.
    """
    result = {}
    for constant in {run.constant for run in runs} - {""}:
        here = [run for run in runs if run.constant == constant]
        several = len({run.source for run in here}) > 1
        fits: dict[str, tuple[float, float]] = {}
        for run in here:
            left = run.source if several else run.what
            rest = [other for other in here if (other.source if several else other.what) != left]
            if left not in fits:
                memory = None if constant.startswith("A100") else MEMORY
                fits[left] = fit(rest, memory) if rest else (run.matrix, MEMORY)
            result[run.source, run.what] = _error(run, *fits[left])
    return result
