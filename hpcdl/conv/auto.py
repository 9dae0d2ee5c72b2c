"""Which algorithm is the quickest for a problem: by a cost model on a CPU, by trying on a GPU.

On a CPU each candidate's time is predicted (`hpcdl.conv.model`) by rates that were measured once on this machine. On a
GPU it is torch's own convolution, unless `torch.backends.cudnn.benchmark` says that trying is welcome: then, as torch
does with the algorithms of cuDNN, each candidate is run with every new problem, and the quickest is kept for as long as
the process lives. Trying takes seconds: Triton tries tiles for each.
"""

from functools import cache, lru_cache

import torch

from hpcdl.conv.algorithm import has_triton
from hpcdl.conv.calibration import rates, seconds_on_gpu
from hpcdl.conv.model import TORCH, Situation, candidates, predict
from hpcdl.conv.registry import ALGORITHMS

CAUTION = 1.05  # ours must promise more than the errors of the model, or of a few measurements


def choose(situation: Situation) -> str:
    """The candidate that should take the least time."""
    if situation.device == "cpu":
        return by_model(situation) if situation.dtype in (torch.float32, torch.float64) else "torch"
    if situation.device == "cuda" and torch.backends.cudnn.benchmark:
        return by_trying(situation)
    return "torch"


@lru_cache(maxsize=4096)
def by_model(situation: Situation) -> str:
    """The choice on a CPU; measures the machine's rates when they are first needed."""
    known = rates(situation.dtype, situation.threads)
    return quickest_of({name: predict(name, situation, known) for name in candidates(situation.problem)})


@cache
def by_trying(situation: Situation) -> str:
    """The choice on a GPU: every candidate is run."""
    return quickest_of(seconds_on_gpu(situation, candidates_on_gpu(situation)))


def quickest_of(seconds: dict[str, float]) -> str:
    """The name with the least seconds, of which ours count for a little more."""
    return min(seconds, key=lambda name: seconds[name] * (1 if name in TORCH else CAUTION))


def candidates_on_gpu(situation: Situation) -> list[str]:
    """torch, in both of its memory formats, and the algorithms with kernels for this problem and data type."""
    if not has_triton():
        return [*TORCH]
    can = (name for name, a in ALGORITHMS.items() if not a.limits(situation.problem, "cuda", situation.dtype))
    return [*TORCH, *can]
