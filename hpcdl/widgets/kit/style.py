"""The one style sheet: every picture of the course is a card of one look, colour-blind safe, readable on a projector.

Its colours are names (see `palette`): a picture on a dark page is drawn dark.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cycler import cycler
from IPython import get_ipython
from IPython.display import display

from hpcdl.widgets.kit import palette, plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLOURS = ("blue", "orange", "green", "purple", "sky", "vermillion")
BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION = CYCLE = tuple(palette.named(name) for name in COLOURS)
INK, ALARM, GREY = (palette.named(name) for name in ("ink", "alarm", "grey"))
CONTOUR, FAINT, CARD = (palette.named(name) for name in ("contour", "faint", "card"))

BEHIND: dict[str, Any] = {"facecolor": CARD, "edgecolor": "none", "alpha": 0.8, "pad": 1}  # a text on a line

DPI = 100  # one inch of a figure is 100 CSS pixels on the page

STYLE: dict[Any, Any] = {  # in matplotlib's types every name of a setting is a type of its own
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.facecolor": CARD,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 12,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": DPI,
    "figure.facecolor": CARD,
    "font.size": 12,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "savefig.facecolor": CARD,
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 11,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 11,
}


PRINTED = """<style>
.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stdout"] { overflow-x: auto; }
.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stdout"] pre { white-space: pre; }
</style>"""


class Alarm(str):
    """A sentence for the picture that says something went wrong: shown in dark vermillion."""


def use() -> None:
    """Give this notebook's plots the course's style and keep the rows of printed tables whole: in a lab's first cell.

    Figures of `plt.show()` follow the page's theme. JupyterLab folds a printed line that is wider than the page, in the
    middle of a word; here the table scrolls.
    """
    import matplotlib

    matplotlib.rcParams.update(STYLE)
    if hasattr(get_ipython(), "kernel"):
        plots.follow_theme(get_ipython())
        display({"text/html": PRINTED, "text/plain": ""}, raw=True)


def shade(value: float) -> str:
    """Return a blue for `value` in [0, 1], from faint to strong, for ordered curves (learning rates, batch sizes)."""
    return palette.shade(value)


def title_over_legend(axes: "Axes", title: str) -> None:
    """Set the title, and put the legend, if there are labels, into a row between title and axes."""
    axes.set_title(title, pad=22)
    if axes.get_legend_handles_labels()[0]:
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
        axes.legend(ncols=4, fontsize=9.5, columnspacing=1.2, **place)


def ticks(axis: "Axis", places: Sequence[float], labels: Sequence[str]) -> None:
    """Ticks at `places` with `labels`: several times faster than `set_ticks`, which recreates every tick at once."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FixedFormatter(labels))
    axis.set_minor_locator(NullLocator())


def decades(axis: "Axis") -> None:
    """Ticks of a logarithmic axis at whole powers of ten alone: the minor ones are noise, and slow to draw."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(numticks=7))
    axis.set_minor_locator(NullLocator())
