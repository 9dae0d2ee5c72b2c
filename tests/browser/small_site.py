"""Build two pages with the site's own theme, style and HTML, in seconds: `python small_site.py FOLDER`.

The site itself takes minutes, since it renders every picture.
"""

import sys
from pathlib import Path

from sphinx.cmd.build import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import site_pages  # noqa: E402
from course import courses  # noqa: E402
from frames import Frames  # noqa: E402

CONF = f"""
import sys
sys.path.insert(0, {str(DOCS)!r})
exec(compile(open({str(DOCS / "conf.py")!r}).read(), {str(DOCS / "conf.py")!r}, "exec"))
html_static_path = [{str(DOCS / "_static")!r}]
templates_path = [{str(DOCS / "_templates")!r}]
def setup(app):
    app.connect("html-page-context", _level_of_captions, priority=900)
"""
INDEX = "# A course\n\n{cards}\n\n```{{toctree}}\n:caption: Learn\n:hidden:\n\nlab\n```\n"


def write(folder: Path) -> None:
    """Write the sources into `folder`."""
    (course,) = (each for each in courses() if each.slug == "gradient_descent")
    drawn = {
        name: Frames(name, "What it shows.", "Its text.", "rate", 600, 300, ["One.", "Two."])
        for name in course.pictures
    }
    (folder / "conf.py").write_text(CONF.replace("__file__", repr(str(DOCS / "conf.py"))), encoding="utf-8")
    (folder / "index.md").write_text(
        INDEX.format(cards=site_pages.raw(site_pages.cards([course], drawn))), encoding="utf-8"
    )
    (folder / "lab.md").write_text(site_pages.lab_page(course, drawn), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write(folder)
    sys.exit(main(["-q", "-b", "html", str(folder), str(folder / "built")]))
