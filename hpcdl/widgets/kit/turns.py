"""One drawing at a time in this process, whichever threads ask for it.

JupyterLab sends a control's first message to the kernel's main thread and later ones to a subshell, a thread of its own
(Jupyter Enhancement Proposal 91); a training's records come by a third. Matplotlib knows no threads, not even in
figures that have nothing to do with each other: fonts and settings are shared.
"""

import threading
from collections.abc import Callable, Hashable

MOST = 50  # drawings that one drawing may ask for: two controls that set each other would never end


class DrawingTurns:
    """One pen for all: who asks waits for its turn, and of several drawings of one picture the newest is made."""

    def __init__(self):
        self._pen, self._holder = threading.Lock(), None
        self._wanted: dict[Hashable, Callable[[], None]] = {}
        self._later: list[Hashable] = []

    def take(self, picture: Hashable, draw: Callable[[], None]) -> None:
        """Return when `draw` is done, or a newer one that was asked for `picture` meanwhile.

        Asked for from inside of a drawing (which has set a control), it is done as soon as that one is over.
        """
        self._wanted[picture] = draw
        if self._holder == threading.get_ident():
            self._later.append(picture)
            return
        with self._pen:
            self._holder = threading.get_ident()
            try:
                self._draw(picture)
                for _ in range(MOST):
                    if self._later:
                        self._draw(self._later.pop(0))
            finally:
                self._holder, self._later = None, []

    def _draw(self, picture: Hashable) -> None:
        draw = self._wanted.pop(picture, None)  # none is left where another thread has drawn the newest
        if draw is not None:
            draw()


TURNS = DrawingTurns()
