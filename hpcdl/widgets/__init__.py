"""Explorables: `pictures` holds one per file, each a pure `draw(state, axes)` with its controls.

`kit` implements pictures. This package exports what labs use: `Explorable` and `LiveFigure` to make a picture, `style`
for its looks, `when_solved` for a cell that waits for an exercise, `passed` for a cell that a wrong answer would break,
`guess`, `guessed` and `reveal` for a cell that waits for a guess, `your_program` for questions on a solved exercise,
`progress` and `saying` for what takes long.
"""

from hpcdl.saying import progress, saying
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.explorable import Explorable
from hpcdl.widgets.kit.guessing import guess, guessed, reveal
from hpcdl.widgets.kit.live import LiveFigure
from hpcdl.widgets.kit.waiting import passed, when_solved
from hpcdl.widgets.kit.your_program import your_program

__all__ = [
    "Explorable",
    "LiveFigure",
    "guess",
    "guessed",
    "passed",
    "progress",
    "reveal",
    "saying",
    "style",
    "when_solved",
    "your_program",
]
