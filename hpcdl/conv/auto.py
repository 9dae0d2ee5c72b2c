"""Choose the fastest algorithm for a problem: by a cost model on a CPU, by trials on a GPU.

On a CPU each candidate's time is predicted (`hpcdl.conv.model`) by rates that were measured once on this machine. On a
GPU it is torch's own convolution, unless `torch.backends.cudnn.benchmark` enables trials: then, like torch with cuDNN's
algorithms, it runs each candidate for every new problem and keeps the fastest for the lifetime of the process. Trials
take seconds, because Triton tries several tiles for each.
"""

from functools import cache, lru_cache

import torch

from hpcdl.conv.algorithm import has_triton
from hpcdl.conv.calibration import doubt, rates, renew, seconds_on_gpu
from hpcdl.conv.model import TORCH, Situation, candidates, predict
from hpcdl.conv.registry import ALGORITHMS
from hpcdl.machine import Quiet

CAUTION = 1.05  # ours must be faster by more than the error of the model, or of a few measurements


def choose(situation: Situation) -> str:
    """Return the candidate that should take the least time."""
    if situation.device == "cpu":
        if renew():
            forget()
        return by_model(situation) if situation.dtype in (torch.float32, torch.float64) else "torch"
    if situation.device == "cuda" and torch.backends.cudnn.benchmark:
        return by_trying(situation)
    return "torch"


@lru_cache(maxsize=4096)
def by_model(situation: Situation) -> str:
    """Choose on a CPU; measure the machine's rates when they are first needed. Without rates, choose torch's."""
    known = rates(situation.dtype, situation.threads)
    if known is None:
        return "torch"
    return quickest_of({name: predict(name, situation, known) for name in candidates(situation.problem)})


@lru_cache(maxsize=4096)
def expected(situation: Situation, name: str) -> float:
    """Return the seconds that the model predicts; 0 without rates."""
    known = rates(situation.dtype, situation.threads)
    return 0.0 if known is None else predict(name, situation, known)


class Experience:
    """Compare calls' seconds with the model's predictions; wrong rates are measured again."""

    CALLS = 8  # per problem; the fastest counts, so a busy moment does not matter
    FACTOR = 2.0  # allowed error of the model, up or down
    LEAST = 5e-3  # seconds: in shorter calls other costs are a large part

    def __init__(self):
        self._ratios: dict[Situation, list[float]] = {}
        self._quiet: dict[Situation, Quiet] = {}

    def note(self, situation: Situation, name: str, seconds: float) -> None:
        """Note the seconds of a call."""
        if situation.device != "cpu" or situation.dtype not in (torch.float32, torch.float64):
            return
        if name not in candidates(situation.problem):
            return  # it was chosen by name, and has no rate
        predicted = expected(situation, name)
        ratios = self._ratios.setdefault(situation, [])
        if predicted < self.LEAST or len(ratios) >= self.CALLS:
            return
        quiet = self._quiet.setdefault(situation, Quiet())
        ratios.append(seconds / predicted)
        holds = 1 / self.FACTOR <= min(ratios) <= self.FACTOR
        if len(ratios) < self.CALLS or holds:
            return
        if quiet and doubt(situation.dtype, situation.threads):
            forget()
        else:  # the next calls may be on a quiet machine, or on another day
            del self._ratios[situation], self._quiet[situation]


experience = Experience()


def forget() -> None:
    """Forget all choices: the rates have changed."""
    by_model.cache_clear()
    expected.cache_clear()
    experience.__init__()  # type: ignore[misc]


@cache
def by_trying(situation: Situation) -> str:
    """Choose on a GPU by running every candidate."""
    return quickest_of(seconds_on_gpu(situation, candidates_on_gpu(situation)))


def quickest_of(seconds: dict[str, float]) -> str:
    """Return the name with the least seconds; ours must be a little faster to win."""
    return min(seconds, key=lambda name: seconds[name] * (1 if name in TORCH else CAUTION))


def candidates_on_gpu(situation: Situation) -> list[str]:
    """Return torch in both memory formats, and the algorithms with kernels for this problem and data type."""
    if not has_triton():
        return [*TORCH]
    can = (name for name, a in ALGORITHMS.items() if not a.limits(situation.problem, "cuda", situation.dtype))
    return [*TORCH, *can]
