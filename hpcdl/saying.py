"""Sentences below a notebook's cell: a line, also of a command, that says what takes long, and how far it is."""

import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from IPython import get_ipython
from IPython.display import display

T = TypeVar("T")

QUIET = 2.0  # seconds without a word
PAUSE = 1.0  # seconds between two changes of the line
FOLDED = 56  # letters, which even a narrow page shows in one line
_tell: Callable[[str], None] | None = None  # shows the line of a command


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items; after two seconds in a notebook, a line names the current one, until the loop ends.

        for layer, problem in progress(LAYERS.items(), "layer"):

    shows, for example: layer 3 of 4: VGG-16 conv1_1 (5 s)
    """
    every, now = list(items), what
    with saying(lambda: now):
        for number, item in enumerate(every, 1):
            now = f"{what} {number} of {len(every)}{_name(item)}"
            yield item


def _name(item: Any) -> str:
    first = item[0] if isinstance(item, tuple) else item
    name = getattr(first, "__name__", first)
    return f": {name}" if isinstance(name, str) else ""


def sentences(text: object) -> None:
    """Print prose; a notebook, which scrolls long printed lines so that tables keep their rows, gets short ones."""
    said = str(text)
    if hasattr(get_ipython(), "kernel"):
        lines = said.split("\n")
        said = "\n".join(textwrap.fill(x, FOLDED, break_long_words=False, break_on_hyphens=False) for x in lines)
    print(said)


@contextmanager
def saying(text: str | Callable[[], str]) -> Iterator[None]:
    """Show the text, or what the function returns, with the seconds so far: in a notebook, after the first two."""
    follower = _Follower(text if callable(text) else lambda: text)
    try:
        follower.begin()
        yield
    finally:
        follower.end()


@contextmanager
def told(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` in the block with what a notebook would show."""
    global _tell
    _tell = tell
    try:
        yield
    finally:
        _tell = None


class StatusLine:
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


class _Follower:
    """Changes a status line once a second, from another thread: a step of a loop may take long."""

    def __init__(self, text: Callable[[], str]):
        self._text, self._line, self._shell = text, StatusLine(), get_ipython()
        self._over, self._thread = threading.Event(), threading.Thread(target=self._follow, daemon=True)

    def begin(self) -> None:
        """Show the line from now on, in a notebook."""
        if hasattr(self._shell, "kernel"):
            self._thread.start()

    def _follow(self) -> None:
        cell, pause = self._shell.execution_count, QUIET
        while not self._over.wait(pause) and self._shell.execution_count == cell:  # an interruption may skip `end`
            self._line.say(self._text())
            pause = PAUSE

    def end(self) -> None:
        """Remove the line."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._line.clear()
