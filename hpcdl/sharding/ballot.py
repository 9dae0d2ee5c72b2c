"""The numbers that ranks agree on in every step: samples, used parameters, and votes."""

from collections.abc import Iterable, Sequence

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Background, Communicator
from hpcdl.ddp.left_out import require_none_left_out, without_left_out


class Ballot:
    """Numbers summed over the ranks: `samples`, one per parameter (nonzero if the rank used it), then `alike`.

    `alike` are votes on what must be the same on all ranks (`hpcdl.ddp.alike`). The time for a few numbers depends on
    rounds, not bytes, so they travel in one float64 message.
    """

    def __init__(self, samples: float, used: Iterable[float], comm: Communicator, alike: Sequence[float] = ()):
        self._comm, self._mine = comm, list(used)
        self._numbers = torch.tensor([samples, *self._mine, *alike], dtype=torch.float64, device=comm.devices[0])
        self._params = len(self._mine)

    def count(self, background: Background) -> tuple[float, list[bool]]:
        """Return N, and whether any rank used each parameter, after all calls running in `background`.

        Raises ValueError, on every rank, when no rank has a sample.
        """
        background.start(self._sum)
        background.wait()
        total = float(self._numbers[0])
        if not total:
            raise ValueError("no rank has a sample, so there is no mean over them; give each step a batch")
        return total, [votes >= 1 for votes in self.votes]

    @property
    def votes(self) -> list[float]:
        """Return the sums of the votes on each parameter, after `count`, without fractions."""
        return without_left_out(self._sums, self._comm)

    @property
    def _sums(self) -> list[float]:
        return self._numbers[1 : 1 + self._params].tolist()

    def require_none_left_out(self, names: Sequence[object]) -> None:
        """Call `hpcdl.ddp.left_out.require_none_left_out`, after `count`."""
        require_none_left_out(self._sums, self._mine, names, self.alike[0], self._comm)

    @property
    def alike(self) -> list[float]:
        """Return the sums of what must be the same on all ranks, after `count`."""
        return self._numbers[1 + self._params :].tolist()

    def _sum(self, comm: Communicator) -> None:
        recursive_doubling_all_reduce(self._numbers, comm)
