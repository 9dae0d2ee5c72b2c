"""TeX as vector pictures, set by matplotlib: a deck needs no network. Formulas that it cannot set stay as TeX."""

import base64
import io
import re
from functools import lru_cache
from html import escape

DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"\$([^$\n]+?)\$")
# The labs' TeX commands that matplotlib knows by another name.
REWRITES = [
    (re.compile(pattern), new)
    for pattern, new in [
        (r"\\tfrac|\\dfrac", r"\\frac"),
        (r"\\frac\s*(\w|\\[a-zA-Z]+)\s*(\w|\\[a-zA-Z]+)", r"\\frac{\1}{\2}"),
        (r"\\sqrt\s*(\w)", r"\\sqrt{\1}"),
        (r"\\(mathcal|mathbb|mathrm)\s+(\w)", r"\\\1{\2}"),
        (r"\\le(?![a-zA-Z])", r"\\leq"),
        (r"\\ge(?![a-zA-Z])", r"\\geq"),
        (r"\\[lr]Vert(?![a-zA-Z])", r"\\Vert"),
        (r"\\(?:Big|big|Bigg|bigg|mathrel)[lr]?(?![a-zA-Z])", ""),
        (r"\\bmod(?![a-zA-Z])", r"\\;\\mathrm{mod}\\;"),
        (r"\\tag\{(.+?)\}", r"\\qquad (\1)"),
    ]
]


def html(tex: str, size: float = 1.0) -> str:
    """A formula as an image whose text for screen readers is the TeX, `size` times the text's size; else as code."""
    drawn = _drawn(" ".join(tex.split()))
    if drawn is None:
        return f"<code>{escape(tex.strip())}</code>"
    source, width, height, depth = (drawn[0], *(size * em for em in drawn[1:]))
    look = f"width:{width:.2f}em;height:{height:.2f}em;vertical-align:{-depth:.2f}em"
    return f'<img class="tex" src="{source}" style="{look}" alt="{escape(tex.strip(), quote=True)}">'


def plain(tex: str) -> str:
    """Return the TeX in matplotlib's words."""
    for pattern, new in REWRITES:
        tex = pattern.sub(new, tex)
    return tex


@lru_cache(maxsize=1000)
def _drawn(tex: str) -> tuple[str, float, float, float] | None:
    """An SVG as a data address, with its width, height and depth in em; None if matplotlib does not know the TeX."""
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser, math_to_image

    points, text, buffer = 20, f"${plain(tex)}$", io.BytesIO()
    font = FontProperties(size=points)
    try:
        with rc_context({"mathtext.fontset": "cm", "svg.hashsalt": "hpcdl", "text.color": "black"}):
            width, height, depth, _, _ = MathTextParser("path").parse(text, dpi=72, prop=font)
            math_to_image(text, buffer, prop=font, dpi=72, format="svg")
    except ValueError:
        return None
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", buffer.getvalue().decode(), flags=re.DOTALL)
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return source, width / points, height / points, depth / points
