"""The command `hpcdl slides`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hpcdl import labs
from hpcdl.commands import during, end, say


def slides(
    name: Annotated[str, typer.Argument(metavar="lab", help="The lab: its number or its slug.")],
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The file to write (default: slides-LAB.html).")
    ] = None,
    play: Annotated[bool, typer.Option(help="Let pictures play; without, a still of each.")] = True,
) -> None:
    """Write a lab as slides: headings, pictures that play, key formulas, in one HTML file that needs no network.

    Arrow keys turn the pages, P plays a picture, print gives a page for each slide.
    """
    from hpcdl.files import write_whole
    from hpcdl.slides.deck import slides as slides_of
    from hpcdl.slides.page import page

    notebook = labs.find(name, labs.shipped())
    out = out or Path(f"slides-{notebook.stem}.html")
    if not out.parent.is_dir():  # said before the pictures are drawn
        end(f"{out.parent}: there is no such folder; make it, or choose another place")
    with during(f"Drawing the pictures of {notebook.stem}"):
        found = slides_of(json.loads(notebook.read_text(encoding="utf-8"))["cells"])
        text = page(found, None if play else 1)
    write_whole(out, text)
    say(f"Wrote {out}: {len(found)} slides. Open it in a browser.")
