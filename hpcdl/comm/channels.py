"""Channels: each background has its own tags, so that two backgrounds never receive each other's messages."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hpcdl.comm.base import Communicator

TAGS = 1 << 14  # tags of one channel; the rank's own messages come first, then channel 0, channel 1, ...
MOST = 1 << 14  # channels before their numbers wrap around; the first ones are closed by then


class Channels:
    """The numbers of one rank's channels on one communicator.

    Backgrounds of all ranks have the even numbers, in the order in which every rank makes them: `made` so far. A
    group's background has an odd number. Its members agree on it, because they may have made different backgrounds
    before.
    """

    def __init__(self, most: int = MOST):
        self.made = 0
        self._for_groups = 0
        self._most = most

    def next(self) -> int:
        """Return the channel for the next background of all ranks."""
        number, self.made = self.made, self.made + 1
        return 2 * number % self._most

    def next_of(self, group: "Communicator") -> int:
        """Return the channel for the next background of `group`; every member calls this."""
        number = _largest(self._for_groups, group)
        self._for_groups = number + 1
        return (2 * number + 1) % self._most


def offset(channel: int) -> int:
    """Return the number to add to a channel's tags."""
    return TAGS * (channel + 1)


def _largest(number: int, comm: "Communicator") -> int:
    """Return the largest `number` of any rank; rank 0 collects them and sends the result to all."""
    x = torch.tensor([number], device=comm.devices[0])
    if comm.rank:
        comm.send(x, 0, TAGS - 1)
        comm.recv(x, 0, TAGS - 1)
        return int(x)
    theirs = torch.empty_like(x)
    for source in range(1, comm.size):
        comm.recv(theirs, source, TAGS - 1)
        x = torch.maximum(x, theirs)
    for dest in range(1, comm.size):
        comm.send(x, dest, TAGS - 1)
    return int(x)
