"""One HTML file from slides: pictures play, arrow keys turn the pages, and print gives a page for each slide."""

import base64
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

from hpcdl.slides import formulas
from hpcdl.slides.deck import Slide

HERE = Path(__file__).parent


def page(slides: list[Slide], most: int | None = None) -> str:
    """Return the file's text; an animation has at most `most` frames."""
    shown = "\n".join(_section(slide, most) for slide in slides)
    title = escape(slides[0].title if slides else "Slides")
    script = (HERE / "deck.js").read_text(encoding="utf-8")
    style = (HERE / "deck.css").read_text(encoding="utf-8")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<title>{title}</title><style>{style}</style></head>\n'
        f'<body><main>\n{shown}\n</main><nav><button id="back" aria-label="Back">◀</button><output id="place"></output>'
        f'<button id="next" aria-label="Next">▶</button></nav><script>{script}</script></body></html>\n'
    )


def _section(slide: Slide, most: int | None) -> str:
    if slide.picture:
        return f"<section><h2>{inline(slide.title)}</h2>{_film(slide.picture, most)}</section>"
    level = "h1" if slide.is_first else "h2"
    parts = [f"<{level}>{inline(slide.title)}</{level}>"]
    parts += [f"<p>{inline(' '.join(slide.sentences))}</p>"] if slide.sentences else []
    parts += [f'<p class="formula">{formulas.html(tex, 1.25)}</p>' for tex in slide.formulas]
    parts += [f"<p>{inline(slide.announced)}</p>"] if slide.announced else []
    parts += ["<ul>" + "".join(f"<li>{inline(item)}</li>" for item in slide.items) + "</ul>"] if slide.items else []
    parts += [block(slide.block)] if slide.block else []
    return f"<section{' class=first' if slide.is_first else ''}>{''.join(parts)}</section>"


def inline(text: str) -> str:
    """Markdown within a line as HTML, with its formulas."""
    from markdown_it import MarkdownIt

    return _with_formulas(text, MarkdownIt("commonmark", {"html": False}).renderInline)


def block(text: str) -> str:
    """Return a table or code in Markdown as HTML, with its formulas."""
    from markdown_it import MarkdownIt

    html = _with_formulas(text, MarkdownIt("commonmark", {"html": False}).enable("table").render)
    return re.sub(r"<thead>\s*(<tr>\s*(<th></th>\s*)*</tr>)?\s*</thead>", "", html)


def _with_formulas(text: str, render: Callable[[str], str]) -> str:
    set_ = [formulas.html(tex) for tex in formulas.INLINE.findall(text)]
    html = render(formulas.INLINE.sub("\N{OBJECT REPLACEMENT CHARACTER}", text))
    for image in set_:
        html = html.replace("\N{OBJECT REPLACEMENT CHARACTER}", image, 1)
    return html


def _film(name: str, most: int | None) -> str:
    from hpcdl.widgets.film import shoot

    film = shoot(name, most=most)
    alt = escape(f"{film.title} {film.texts[film.still]}".replace("`", ""), quote=True)
    play = f' data-play="{_address(film.animation())}"' if len(film.images) > 1 else ""
    button = '<button class="play">▶ Play</button> ' if play else ""
    return (
        f'<figure><img src="{_address(film.poster())}"{play} alt="{alt}"><figcaption>{button}{inline(film.title)}'
        "</figcaption></figure>"
    )


def _address(webp: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(webp).decode()}"
