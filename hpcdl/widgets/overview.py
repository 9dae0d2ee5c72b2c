"""Where am I? The points of each lab, what is left with a link to it, and how well one guesses: a cell of the map."""

import os
from html import escape
from pathlib import Path

import ipywidgets as widgets
from IPython.display import HTML, display

from hpcdl.guesses import Ledger, file_in
from hpcdl.progress import FULL_MARKS, LabProgress, ProgressError, labs_in, progress
from hpcdl.widgets.pictures import calibration

RESET = "Forget my guesses"
STYLE = """
.hpcdl-map { font: 14px/1.5 var(--jp-content-font-family, system-ui, sans-serif); max-width: 60rem; }
.hpcdl-map table { border-collapse: collapse; width: 100%; font-size: inherit; margin: 4px 0 12px; table-layout: auto; }
.hpcdl-map :is(td, th) { text-align: left !important; padding: 3px 14px 3px 0; vertical-align: middle;
  white-space: nowrap; background: none; color: var(--jp-content-font-color1, inherit); }
.hpcdl-map td:last-child { white-space: normal; width: 60%; }
.hpcdl-map td.hpcdl-number { text-align: right !important; font-variant-numeric: tabular-nums; }
.hpcdl-map meter { width: 8rem; vertical-align: middle; }
.hpcdl-map .hpcdl-rest { opacity: .75; }
"""


def where_am_i(folder: str | os.PathLike | None = None) -> None:
    """Show the points of each lab in `folder` (default: those here), and the guesses with a button to forget them."""
    try:
        display(HTML(table(progress(Path(folder) if folder else None))))
    except ProgressError as error:
        print(error)
        return
    display(guesses(Ledger(file_in(labs_in(folder)))))


def table(labs: list[LabProgress]) -> str:
    """The labs as HTML, each with a link, its points and what is left of it."""
    points, most = sum(lab.points for lab in labs), FULL_MARKS * len(labs)
    rows = "".join(map(_row, labs))
    return (
        f"<style>{STYLE}</style><div class='hpcdl-map'><table><tr><th>lab<th>points<th><th>next</tr>{rows}</table>"
        f"<b>{points:g} of {most:g} points.</b> {_advice(labs)}</div>"
    )


def _row(lab: LabProgress) -> str:
    name = escape(lab.name.replace("_", " ").replace(" ", " · ", 1))
    meter = f"<meter min=0 max={FULL_MARKS} value={lab.points:g} aria-label='points of lab {name}'></meter>"
    link = f"<a href='{escape(lab.name)}.ipynb'>{name}</a>"
    return f"<tr><td>{link}<td class='hpcdl-number'>{lab.points:g}<td>{meter}<td>{_left(lab)}</tr>"


def _left(lab: LabProgress) -> str:
    if not lab.left:
        return "✓ all done"
    begin, rest = lab.left[0], len(lab.left) - 1
    more = f" <span class='hpcdl-rest'>and {rest} more</span>" if rest else ""
    return f"<code>{escape(begin)}</code>{more}"


def _advice(labs: list[LabProgress]) -> str:
    """Return where to continue: the lab checked last, if it is unfinished, or the first in which there is."""
    begun = [lab for lab in labs if lab.left and lab.checked]
    latest = max(begun, key=lambda lab: lab.checked.timestamp() if lab.checked else 0, default=None)
    lab = latest or next((lab for lab in labs if lab.left), None)
    if lab is None:
        return "That is all there is: well done."
    verb = "Continue with" if latest else "Begin with"
    return f"{verb} <a href='{escape(lab.name)}.ipynb'>{escape(lab.name.replace('_', ' '))}</a>."


def guesses(ledger: Ledger) -> widgets.VBox:
    """The curve of the guesses, and a button with which to begin again."""
    shown = calibration.explorable(lambda: ledger.guesses.values())
    button = widgets.Button(description=RESET, layout={"width": "max-content"}, disabled=not ledger.guesses)
    said = widgets.HTML()

    def reset(_button: widgets.Button) -> None:
        count = len(ledger.guesses)
        ledger.reset()
        kept = f"; their lines are still in {ledger.journal.path.name}" if ledger.journal.path else ""
        said.value, button.disabled = f"{count} {'guess' if count == 1 else 'guesses'} forgotten{escape(kept)}.", True
        shown.picture.render(lambda: shown.state)

    button.on_click(reset)
    return widgets.VBox([shown.view, widgets.HBox([button, said])])
