"""The colours of the course under names that matplotlib knows, each with a value for light and one for dark pages.

Colours are those of Okabe and Ito, "Color Universal Design" (2008), less the yellow, which vanishes on white. On a dark
card blue, green, sky, purple and vermillion are lighter.
"""

from matplotlib import colormaps
from matplotlib.colors import get_named_colors_mapping, to_hex, to_rgb

VALUES = {  # name: on a light page, on a dark one
    "blue": ("#0072B2", "#3d9fdb"),
    "orange": ("#E69F00", "#E69F00"),
    "green": ("#009E73", "#1fb58a"),
    "purple": ("#CC79A7", "#d88fb8"),
    "sky": ("#56B4E9", "#8fd0f5"),
    "vermillion": ("#D55E00", "#ee6f1f"),
    "ink": ("#1f2328", "#e6e9ee"),  # text, axes, what is true
    "alarm": ("#B04A00", "#ff9a5c"),  # vermillion, to be read as text
    "grey": ("#6b7280", "#9aa3b0"),  # what is there for comparison; 4.8:1 against the card
    "contour": ("#a9b1bd", "#5f6875"),
    "faint": ("#d5d9df", "#3a414a"),  # grids
    "card": ("#fcfcfa", "#16191d"),
    "minus side": ("#f9e9c8", "#40341a"),  # of a plane in two classes
    "plus side": ("#d3e6f3", "#1b3548"),
    "valley": ("#f1f3f6", "#2a3038"),  # of a surface, low and high
    "hill": ("#b9c6d6", "#66758a"),
}
_dark = False
_tints: dict[str, tuple[str, float]] = {}
_shades: dict[str, float] = {}


def is_dark() -> bool:
    """Return whether colours are those of a dark page now."""
    return _dark


def value(name: str, dark: bool) -> str:
    """Return the hexadecimal value of a colour of `VALUES` on a light or a dark page."""
    return VALUES[name.removeprefix("hpcdl:")][dark]


def choose(dark: bool) -> None:
    """Give every name its value for a light or a dark page: what is drawn from now on has these colours."""
    global _dark
    _dark = dark
    for name in VALUES:
        get_named_colors_mapping()[named(name)] = value(name, dark)
    for name, (colour, strength) in _tints.items():
        get_named_colors_mapping()[name] = _mixed(colour, strength)
    for name, strength in _shades.items():
        get_named_colors_mapping()[name] = _blue(strength)


def names() -> list[str]:
    """Return every name whose value depends on the page."""
    return [*map(named, VALUES), *_tints, *_shades]


def named(name: str) -> str:
    """Return the name under which matplotlib knows a colour of `VALUES`."""
    return f"hpcdl:{name}"


def tint(colour: str, strength: float) -> str:
    """Return the name of `colour` on the card, from 0 (the card) to 1."""
    name = f"{colour} at {strength:g}"
    _tints[name] = (colour, strength)
    get_named_colors_mapping()[name] = _mixed(colour, strength)
    return name


def shade(strength: float) -> str:
    """Return the name of a blue for `strength` in [0, 1], from faint to strong."""
    name = named(f"shade {strength:g}")
    _shades[name] = strength
    get_named_colors_mapping()[name] = _blue(strength)
    return name


def _blue(strength: float) -> str:
    return to_hex(colormaps["Blues"](0.8 - 0.6 * strength if _dark else 0.35 + 0.6 * strength))


def _mixed(colour: str, strength: float) -> str:
    pairs = zip(to_rgb(colour), to_rgb(named("card")), strict=True)
    red, green, blue = (strength * own + (1 - strength) * card for own, card in pairs)
    return to_hex((red, green, blue))


choose(dark=False)
