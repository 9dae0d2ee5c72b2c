"""The engines serve one run at a time: a cell that comes during another thread's run says so and waits."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcdl.cluster.run import Run

PAUSE = 0.1  # seconds between checks
BUSY = (
    "The engines are busy with another run, such as the dashboard's training: this one begins when that ends. "
    "Stop that run to begin at once. (Interrupting this cell, ■, leaves the other run alone.)"
)
GAVE_UP = (
    "Nothing was run: you stopped waiting for the engines, which are busy with another run. Stop that one (a dashboard "
    "has a button for it), and run this cell again."
)


class GaveUpError(KeyboardInterrupt):
    """The user did not wait for the engines."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class EngineTurns:
    """Let one thread use the engines at a time; a thread never waits for its own runs."""

    def __init__(self):
        self._door = threading.Lock()
        self._runs: list[Run] = []

    def begin(self, make: "Callable[[], Run]", meanwhile: Callable[[], None] | None = None) -> "Run":
        """Call `make()` as soon as no other thread's run is in progress; until then call `meanwhile` ten times a
        second.

        By default a cell says once that it waits. Raises GaveUpError if it is interrupted meanwhile.
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
        """Start a run and return it; None while another thread's is in progress or about to start."""
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
    """Says once that a cell waits; waits of other threads are not reported."""

    def __init__(self):
        self.silent = threading.current_thread() is not threading.main_thread()

    def __call__(self) -> None:
        if not self.silent:
            print(BUSY, flush=True)
        self.silent = True
