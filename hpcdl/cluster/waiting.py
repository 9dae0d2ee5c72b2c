"""A line below a notebook's cell, or of a command, that says how far a start or a run is, if it takes long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from IPython import get_ipython
from IPython.display import display

QUIET = 2.0  # seconds without a word
_tell: Callable[[str], None] | None = None  # shows the line of a command


@contextmanager
def told(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` in the block with what a notebook would show."""
    global _tell
    _tell = tell
    try:
        yield
    finally:
        _tell = None


class Waiting:
    """Shows what is waited for, in one line that changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._begin = clock, clock()
        self._line: Any = None
        self._shown = ""

    def say(self, text: str) -> None:
        """Show `text` and the seconds so far, in notebooks and where it is `told`; nothing in the first seconds."""
        seconds = self._clock() - self._begin
        now = f"{text} ({seconds:.0f} s)"
        if seconds < QUIET or now == self._shown or not (_tell or hasattr(get_ipython(), "kernel")):
            return
        self._shown, content = now, {"text/plain": now}
        if _tell:
            _tell(now)
            return
        if self._line is None:
            self._line = display(content, raw=True, display_id=True)
        else:
            self._line.update(content, raw=True)

    def clear(self) -> None:
        """Remove the line from a notebook: data without a format takes no place on a page."""
        if self._line is not None:
            self._line.update({}, raw=True)

    def end(self, text: str) -> None:
        """Show `text` if anything was shown."""
        if self._line is not None:
            self.say(text)
