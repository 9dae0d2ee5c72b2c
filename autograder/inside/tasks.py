"""The event loop of a notebook's kernel: it is running while a cell runs, and its tasks also run between cells."""

import inspect
import types
from typing import Any

from autograder.boundary.own import contextlib

STEP = 0.005  # seconds
PATIENCE = 2.0  # seconds on a quiet machine for tasks between cells, of a whole notebook


class Loop:
    """Starts with the first cell that needs it."""

    def __init__(self) -> None:
        self.loop: Any = None
        self.left = PATIENCE

    def needs(self, code: str, compiled: types.CodeType) -> bool:
        """Whether a cell has to run in the loop."""
        return bool(self.loop is not None or "asyncio" in code or compiled.co_flags & inspect.CO_COROUTINE)

    def run(self, compiled: types.CodeType, namespace: dict) -> None:
        """Run a cell in the loop."""
        import asyncio  # on first use: hardly any cell needs it

        async def run() -> None:
            waiting = eval(compiled, namespace)
            if compiled.co_flags & inspect.CO_COROUTINE:
                await waiting

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(run())

    def settle(self) -> None:
        """Let tasks run until none can, or only after more seconds than are left."""
        if self.loop is None:
            return
        import asyncio

        while self.left > 0 and self._is_busy():
            with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):  # of a task
                self.loop.run_until_complete(asyncio.sleep(STEP))
            self.left -= STEP  # rounds are counted: on a busy machine each takes longer, and so do the tasks

    def _is_busy(self) -> bool:
        """Whether something is ready, waits for a near moment, or runs in a thread of the loop's pool."""
        end = self.loop.time() + self.left
        if self.loop._ready or any(each.when() < end and not each.cancelled() for each in self.loop._scheduled):
            return True
        pool = self.loop._default_executor
        return pool is not None and pool._idle_semaphore._value < len(pool._threads)
