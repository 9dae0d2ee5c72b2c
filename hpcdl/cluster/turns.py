"""The engines work for one run at a time: a cell that comes while another thread's run is on says so, and waits."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcdl.cluster.run import Run

PAUSE = 0.1  # seconds between two looks
BUSY = (
    "The engines are busy with another run, such as the dashboard's training: this one begins when that ends. "
    "Press its stop to go on at once. (Interrupting this cell, ■, leaves the other run alone.)"
)
GAVE_UP = (
    "Nothing was run: you stopped waiting for the engines, which are busy with another run. Stop that one (a dashboard "
    "has a button for it), and run this cell again."
)


class GaveUpError(KeyboardInterrupt):
    """The user did not wait for the engines."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Turns:
    """Whose runs are on. A thread never waits for its own: of those that a cell left behind, the engines know."""

    def __init__(self):
        self._door = threading.Lock()
        self._runs: list[Run] = []

    def begin(self, make: "Callable[[], Run]", meanwhile: Callable[[], None] | None = None) -> "Run":
        """`make()`, as soon as no other thread's run is on; until then `meanwhile` is called ten times a second.

        By default a cell says once that it waits. GaveUpError where it is interrupted meanwhile.
        """
        meanwhile = meanwhile or _Saying()
        while (run := self._made(make)) is None:
            try:
                meanwhile()
                time.sleep(PAUSE)
            except KeyboardInterrupt:
                raise GaveUpError(GAVE_UP) from None
        return run

    def _made(self, make: "Callable[[], Run]") -> "Run | None":
        """A run that has begun; None while another thread's is on, or about to be."""
        if not self._door.acquire(blocking=False):
            return None
        try:
            self._runs = [run for run in self._runs if run.at_work]
            if any(run.thread is not threading.current_thread() for run in self._runs):
                return None
            self._runs.append(run := make())
            return run
        finally:
            self._door.release()


class _Saying:
    """Says once that a cell waits; of other threads' waiting no cell is to speak."""

    def __init__(self):
        self.silent = threading.current_thread() is not threading.main_thread()

    def __call__(self) -> None:
        if not self.silent:
            print(BUSY, flush=True)
        self.silent = True
