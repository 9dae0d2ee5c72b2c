"""What ranks agree on in every step besides gradients: the number of samples, and which parameters are used."""

from collections.abc import Iterable

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Background, Communicator


class Ballot:
    """Numbers summed over the ranks: `samples` first, then one per parameter, nonzero if the rank used it.

    The time for a few numbers depends on rounds, not bytes, so they travel in one float64 message.
    """

    def __init__(self, samples: float, used: Iterable[float], comm: Communicator):
        self._numbers = torch.tensor([samples, *used], dtype=torch.float64, device=comm.devices[0])

    def count(self, background: Background) -> tuple[float, list[bool]]:
        """Return N, and whether any rank used each parameter, after all calls running in `background`.

        Raises ValueError, on every rank, when no rank has a sample.
        """
        background.start(self._sum)
        background.wait()
        total, *used = self._numbers.tolist()
        if not total:
            raise ValueError("no rank has a sample, so there is no mean over them; give each step a batch")
        return total, [votes > 0 for votes in used]

    @property
    def votes(self) -> list[float]:
        """Return the votes on each parameter; they are sums after `count`."""
        return self._numbers[1:].tolist()

    def _sum(self, comm: Communicator) -> None:
        recursive_doubling_all_reduce(self._numbers, comm)
