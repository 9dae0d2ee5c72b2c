"""A line of a cell's output that says what takes long, and how far it is."""

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


@contextmanager
def saying(text: str | Callable[[], str]) -> Iterator[None]:
    """Show the text, or what the function returns, with the seconds so far: in a notebook, after the first two."""
    line = _Line(text if callable(text) else lambda: text)
    try:
        line.begin()
        yield
    finally:
        line.end()


class _Line:
    """Shows a line that changes once a second, from another thread: a step of a loop may take long."""

    def __init__(self, text: Callable[[], str]):
        self._text, self._begin, self._shown = text, time.monotonic(), None
        self._over, self._thread = threading.Event(), threading.Thread(target=self._follow, daemon=True)
        self._shell = get_ipython()

    def begin(self) -> None:
        """Show the line from now on, in a notebook."""
        if hasattr(self._shell, "kernel"):
            self._thread.start()

    def _follow(self) -> None:
        cell, pause = self._shell.execution_count, QUIET
        while not self._over.wait(pause) and self._shell.execution_count == cell:  # an interruption may skip `end`
            self._show({"text/plain": f"{self._text()} ({time.monotonic() - self._begin:.0f} s)"})
            pause = PAUSE

    def _show(self, content: dict) -> None:
        if self._shown is None:
            self._shown = display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)

    def end(self) -> None:
        """Remove the line: data without a format takes no place on a page."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._shown is not None:
            self._show({})
