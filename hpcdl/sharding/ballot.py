"""The numbers that ranks agree on in every step: samples, used parameters, and votes."""

from collections.abc import Iterable, Sequence

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Background, Communicator


class Ballot:
    """Numbers summed over the ranks: `samples`, one per parameter (nonzero if the rank used it), then `alike`.

    `alike` are votes on what must be the same on all ranks (`hpcdl.ddp.alike`). The time for a few numbers depends on
    rounds, not bytes, so they travel in one float64 message.
    """

    def __init__(self, samples: float, used: Iterable[float], comm: Communicator, alike: Sequence[float] = ()):
        used = list(used)
        self._numbers = torch.tensor([samples, *used, *alike], dtype=torch.float64, device=comm.devices[0])
        self._params = len(used)

    def count(self, background: Background) -> tuple[float, list[bool]]:
        """Return N, and whether any rank used each parameter, after all calls running in `background`.

        Raises ValueError, on every rank, when no rank has a sample.
        """
        background.start(self._sum)
        background.wait()
        total = float(self._numbers[0])
        if not total:
            raise ValueError("no rank has a sample, so there is no mean over them; give each step a batch")
        return total, [votes > 0 for votes in self.votes]

    @property
    def votes(self) -> list[float]:
        """Return the votes on each parameter; they are sums after `count`."""
        return self._numbers[1 : 1 + self._params].tolist()

    @property
    def alike(self) -> list[float]:
        """Return the sums of what must be the same on all ranks, after `count`."""
        return self._numbers[1 + self._params :].tolist()

    def _sum(self, comm: Communicator) -> None:
        recursive_doubling_all_reduce(self._numbers, comm)
