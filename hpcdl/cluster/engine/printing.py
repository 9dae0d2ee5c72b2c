"""Limit what a rank prints in a run: keep the first and last lines, and count those in between."""

import contextlib
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

FIRST, LAST = 1000, 20  # lines
WIDTH = 200  # average characters per line for these limits


class Limited:
    """A stream that passes on the first lines at once, and the last ones when it is closed."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._lines = self._characters = 0
        self._left_out, self._last, self._part = 0, deque[str](maxlen=LAST), ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Pass `text` on, or keep its last lines."""
        if self._lines < FIRST and self._characters < FIRST * WIDTH:
            self._lines += text.count("\n")
            self._characters += len(text)
            return self._stream.write(text)
        *lines, self._part = (self._part + text).split("\n")
        self._part = self._part[-LAST * WIDTH :]
        self._left_out += len(lines)
        self._last.extend(line[: LAST * WIDTH] for line in lines[-LAST:])
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each of `lines`."""
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        """Pass on the number of omitted lines and the last lines."""
        last = [*self._last, *([self._part] if self._part else [])]
        if last:
            if (left_out := self._left_out - len(self._last)) > 0:
                self._stream.write(f"\n... {left_out:,} lines are left out here ...\n")
            self._stream.write("\n".join(last) + "\n")
        self._left_out, self._part = 0, ""
        self._last.clear()


@contextlib.contextmanager
def limited_output() -> Iterator[None]:
    """Limit what is printed in the block."""
    out, err = Limited(sys.stdout), Limited(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            yield
        finally:
            out.finish()
            err.finish()
