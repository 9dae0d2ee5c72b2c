"""Buckets for this model on this network: `bucket_mb="auto"`.

The first steps show when backward has each gradient, and a few messages show the cost of an all-reduce. Then rank 0
finds the buckets whose last message ends soonest (`hpcdl.cost.scaling.merged`), and all ranks use them.
"""

import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import median

import torch

from hpcdl.collectives import broadcast, recursive_doubling_all_reduce
from hpcdl.comm import Communicator
from hpcdl.cost.scaling import Gradient, merged

FIRST_MB = 4.0  # buckets until measured
WARM, MEASURED = 1, 3  # steps that warm up, steps that count
REPEATS = 3  # of each message
SMALLEST, LARGEST = 1 << 12, 25 << 20  # bytes of the messages that alpha and beta are fitted to


class Arrivals:
    """Arrival times of the gradients of `params`, in seconds since their step's forward pass began."""

    def __init__(self, params: Sequence[torch.Tensor]):
        self.params = list(params)
        self._index = {id(param): i for i, param in enumerate(self.params)}
        self._steps: list[dict[int, float]] = [{}]
        self._begin: float | None = None

    @property
    def enough(self) -> bool:
        """Return whether enough steps have been measured."""
        return len(self._steps) > WARM + MEASURED

    def begin(self, now: float) -> None:
        """Note the start of a forward pass; messages can hide only behind the last backward pass of a step."""
        self._begin = now

    def note(self, param: torch.Tensor, now: float) -> None:
        """Note that the gradient of `param` has arrived."""
        if self._begin is not None:
            self._steps[-1][self._index[id(param)]] = now - self._begin

    def end_step(self) -> None:
        """End a step; a step without gradients does not count."""
        if self._steps[-1]:
            self._steps.append({})

    def ready(self) -> list[float]:
        """Return each parameter's median time over the measured steps, never before the parameters that are sent
        earlier."""
        counted = self._steps[WARM : WARM + MEASURED]
        middle = [median(step.get(i, max(step.values())) for step in counted) for i in range(len(self.params))]
        return list(accumulate(middle, max))


def best_groups(
    arrivals: Arrivals, all_reduce: Callable, comm: Communicator, clock: Callable[[], float] = time.perf_counter
) -> list[list[torch.Tensor]]:
    """Return the parameters grouped into rank 0's best buckets, the same on every rank; every rank calls this."""
    params = arrivals.params
    link = _measured(sum(param.nbytes for param in params), all_reduce, comm, clock)
    starts = torch.zeros(len(params), dtype=torch.int64, device=comm.devices[0])
    if comm.rank == 0:
        gradients = [Gradient(ready, p.nbytes) for ready, p in zip(arrivals.ready(), params, strict=True)]
        starts[_starts(gradients, merged(gradients, _affine(*link)))] = 1
    broadcast(starts, comm)
    return _split(params, starts.tolist())


def _measured(
    total: int, all_reduce: Callable, comm: Communicator, clock: Callable[[], float]
) -> tuple[list[int], list[float]]:
    """Return the sizes of a few messages up to `total` bytes, and the seconds that an all-reduce of each takes."""
    largest = max(4 * SMALLEST, min(total, LARGEST))
    sizes = [SMALLEST, (SMALLEST + largest) // 2, largest]
    return sizes, [min(_once(nbytes, all_reduce, comm, clock) for _ in range(REPEATS)) for nbytes in sizes]


def _once(nbytes: int, all_reduce: Callable, comm: Communicator, clock: Callable[[], float]) -> float:
    x = comm.empty(nbytes // 4, torch.float32).zero_()
    recursive_doubling_all_reduce(torch.zeros(1, device=comm.devices[0]), comm)  # all begin at once
    begin = clock()
    all_reduce(x, comm)
    return clock() - begin


def _affine(sizes: list[int], seconds: list[float]) -> Callable[[int], float]:
    from hpcdl.cost.alpha_beta import fit  # imports scipy, which only these buckets need

    alpha, beta, _ = fit(sizes, [max(taken, 1e-12) for taken in seconds])
    return lambda nbytes: alpha + beta * nbytes


def _starts(gradients: list[Gradient], buckets: list[Gradient]) -> list[int]:
    """Return the index of each bucket's first gradient, from the bytes of both."""
    ends = list(accumulate(gradient.nbytes for gradient in gradients))
    before = accumulate((bucket.nbytes for bucket in buckets[:-1]), initial=0)
    return [next(i for i, end in enumerate(ends) if end > done) for done in before]


def _split(params: list[torch.Tensor], starts: list[int]) -> list[list[torch.Tensor]]:
    """Return groups that begin where `starts` has 1, and wherever the dtype or the device changes."""
    groups: list[list[torch.Tensor]] = []
    for param, start in zip(params, starts, strict=True):
        alike = groups and (groups[-1][0].dtype, groups[-1][0].device) == (param.dtype, param.device)
        if start or not alike:
            groups.append([])
        groups[-1].append(param)
    return groups
