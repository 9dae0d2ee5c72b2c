"""A background in virtual time."""

from collections import deque
from collections.abc import Callable

from hpcdl.comm.background import OffsetTags
from hpcdl.comm.base import Background, Communicator
from hpcdl.comm.simulated.machine import SimulatedMachine


class SimulatedBackground(Background):
    """A second clock, on which a rank communicates while it computes on the first; both share the rank's ports.

    `beside(number)` returns the rank's communicator on the clock with that number; messages are on `channel`.
    """

    def __init__(
        self,
        comm: Communicator,
        number: int,
        machine: SimulatedMachine,
        beside: Callable[[int], Communicator],
        channel: int,
    ):
        self._channel = channel
        self._comm, self._rank_turn, self._machine, self._beside = comm, number, machine, beside
        self._turns = machine.turns
        self._calls: deque = deque()
        self._busy = self._awaited = False
        self._turn = machine.add_turn(comm.rank, self._live)

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._calls.append((f, self._comm.clock()))
        if not self._busy:
            self._busy = True
            self._wake(self._turn)

    def wait(self) -> None:
        if self._busy:
            self._awaited = True
            self._machine.waiting[self._rank_turn] = ("wait", (), "its background")
            self._turns.pause(self._rank_turn)
        self._turns.advance(self._rank_turn, max(0.0, self._turns.clocks[self._turn] - self._comm.clock()))

    def close(self) -> None:
        """Nothing to do: the run does not wait for it."""

    def _live(self, number: int) -> None:
        comm = OffsetTags(self._beside(number), self._channel)
        while True:
            while self._calls:
                f, start = self._calls.popleft()
                self._turns.clocks[number] = max(self._turns.clocks[number], start)
                f(comm)
                f = None  # free its objects before the next call
            self._busy = False
            if self._awaited:
                self._awaited = False
                self._machine.waiting[self._rank_turn] = None
                self._wake(self._rank_turn)
            self._turns.pause(number)

    def _wake(self, turn: int) -> None:
        """Wake it at the rank's time, or at its own if that is later."""
        self._turns.clocks[turn] = max(self._turns.clocks[turn], self._comm.clock())
        self._turns.wake(turn)
