"""Explorables: `pictures` holds them, one a file, a pure `draw(state, axes)` and the controls that move it.

`kit` is how a picture works. What labs use of it by name stands here: `Explorable` and `LiveFigure` to make a picture,
`style` for its looks, `when_solved` for a cell that waits for an exercise, `passed` for one to which a wrong
answer would do harm, `guess`, `guessed` and `reveal` for one that waits for a guess.
"""

from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.guessing import guess, guessed, reveal
from hpcdl.widgets.kit.live import LiveFigure
from hpcdl.widgets.kit.waiting import passed, when_solved

__all__ = ["Explorable", "LiveFigure", "guess", "guessed", "passed", "reveal", "style", "when_solved"]
