"""Figures of `plt.show()` on light and dark pages: each is drawn in both palettes, and the page shows one of them.

A picture of ours is painted again when the page tells its theme. A figure of the notebook's own is gone by then: it is
closed as soon as it is shown, often before the page has told anything.
"""

import base64
import html
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgb, to_rgba_array

from hpcdl.widgets.kit import palette
from hpcdl.widgets.kit.turns import TURNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 0.7  # of a picture's width: on a narrower page it scrolls in its frame, and its letters stay readable
DARK = ':is(body[data-jp-theme-light="false"], body[data-vscode-theme-kind*="-dark"], html[theme="dark"])'
CSS = f""".hpcdl-plot {{ overflow-x: auto; }}
.hpcdl-dark {{ display: none; }}
{DARK} .hpcdl-light {{ display: none; }}
{DARK} .hpcdl-dark {{ display: inline; width: auto; height: auto; }}"""


def follow_theme(shell: Any) -> None:
    """Show the figures of IPython's `shell` in the colours of the page, from now on."""
    shell.display_formatter.mimebundle_formatter.for_type_by_name("matplotlib.figure", "Figure", bundle)


def bundle(figure: "Figure", include: Any = None, exclude: Any = None) -> dict[str, str]:
    """Return what Jupyter shows: both drawings as HTML; the light one as a PNG for pages that show no HTML."""
    drawn: list[str] = []
    TURNS.take(figure, lambda: drawn.extend(_both(figure)))
    light, dark = drawn
    width = int.from_bytes(base64.b64decode(light[:32])[16:20], "big")  # in the header of a PNG
    common = f'alt="{html.escape(caption(figure))}" style="min-width: {round(LEAST * width)}px"'
    return {
        "image/png": light,
        "text/html": f'<style>{CSS}</style><div class="hpcdl-plot">'
        f'<img class="hpcdl-light" {common} src="data:image/png;base64,{light}">'
        # Where styles are stripped, as in a notebook that is not trusted, the dark one takes no room.
        f'<img class="hpcdl-dark" {common} width="0" height="0" src="data:image/png;base64,{dark}"></div>',
        "text/plain": repr(figure),
    }


def caption(figure: "Figure") -> str:
    """Return the figure's text for screen readers: titles, or else the labels of its axes."""
    axes = [each for each in figure.axes if each.get_visible()]
    titles = [title for each in axes if (title := each.get_title("left") or each.get_title())]
    labels = [f"{each.get_ylabel()} against {each.get_xlabel()}" for each in axes if each.get_xlabel()]
    return "Plot: " + "; ".join(titles or labels or ["without a title"])


def _both(figure: "Figure") -> list[str]:
    """Return the figure in the light and the dark palette, as base64, and leave palette and figure as they were."""
    found, was_dark = [], palette.is_dark()
    try:
        for dark in (False, True):
            _recolour(figure, dark)
            found.append(_png(figure))
    finally:
        _recolour(figure, was_dark)
    return found


def _png(figure: "Figure") -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi="figure", bbox_inches="tight")
    return base64.b64encode(file.getvalue()).decode()


def _recolour(figure: "Figure", dark: bool) -> None:
    """Choose the palette, and give it to the figure: lines and texts keep a colour's name, but patches, such as bars
    and spines, and collections keep its value."""
    before = {to_rgb(name): name for name in palette.names()}
    palette.choose(dark)
    for artist in _artists(figure):
        for kind in ("facecolor", "edgecolor"):
            read, write = getattr(artist, f"get_{kind}", None), getattr(artist, f"set_{kind}", None)
            if read and write and (changed := _changed(read(), before)) is not None:
                write(changed)


def _artists(figure: "Figure") -> Iterator[Any]:
    """Yield all artists of a figure, with what `findobj` leaves out; none whose colours are those of its numbers."""
    for artist in figure.findobj():
        if getattr(artist, "get_array", lambda: None)() is None:
            yield artist
        for name in ("get_bbox_patch", "arrow_patch"):
            part = getattr(artist, name, None)
            part = part() if callable(part) and name.startswith("get") else part
            if part is not None:
                yield part


def _changed(colours: Any, before: dict[tuple, str]) -> Any:
    """Return colours, one or a row each, with the new values of those that had a name; None if none had."""
    rows = to_rgba_array(colours)
    names = [before.get(tuple(row[:3])) for row in rows]
    if not any(names):
        return None
    for row, name in zip(rows, names, strict=True):
        row[:3] = to_rgb(name) if name else row[:3]
    return rows[0] if np.ndim(colours) == 1 else rows
