"""The site: `make docs` writes it to docs/_build."""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import charts  # noqa: E402
import frames  # noqa: E402
import site_pages  # noqa: E402
import support_page  # noqa: E402
import teaching_pages  # noqa: E402

import hpcdl  # noqa: E402
from autograder import exercises  # noqa: E402
from hpcdl import labs  # noqa: E402

project = "hpcdl"
author = "the hpcdl authors"
copyright = "2026, the hpcdl authors. Code: BSD-3-Clause; texts and pictures: CC BY 4.0"
release = version = hpcdl.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_frames*", "_templates"]
html_theme = "furo"
html_title = f"hpcdl {release}"
html_show_sphinx = False
suppress_warnings = ["myst.header"]  # a page that is included begins at its own level

html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = ["play.js", "keyboard.js"]
html_theme_options = {
    "source_repository": site_pages.REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": [],
    "footer_icons": [],
}

NOTEBOOK_LINK = re.compile(r"\[([^\]]+)\]\([\w./]*?\d\d_(\w+)\.ipynb\)")
OTHER_NOTEBOOK = re.compile(r"\[([^\]]+)\]\([\w./]*\.ipynb\)")
EVERY_LAB = re.compile(r"^labs/\*$", re.MULTILINE)  # in a table of contents
CHANGED = {"teaching/index": teaching_pages.linked_lectures, "support": support_page.linked}  # by page
marks: dict[str, dict[str, str]] = {}  # by page, what replaces each mark in it


def _write_pages(app) -> None:
    """Write what is made from the labs and the library, before Sphinx reads the pages."""
    api_pages.write(HERE / "api")
    teaching_pages.write(HERE / "teaching" / "labs")
    marks["teaching/index"] = {"<!-- plans -->": teaching_pages.plans()}
    marks["index"] = site_pages.write(HERE)
    drawn = charts.write(Path(app.outdir) / charts.FOLDER)
    marks["benchmarks"] = {mark: site_pages.raw(html) if html else "" for mark, html in drawn.items()}


def _links_to_labs(page: str, text: list[str]) -> None:
    """Notebooks are opened in JupyterLab, not here: their links lead to the labs' pages."""
    up = "../" * page.count("/")
    found = NOTEBOOK_LINK.sub(rf"[\1]({up}labs/\2.md)", text[0])
    text[0] = OTHER_NOTEBOOK.sub(r"**\1**", found)


def _read(_app, page: str, text: list[str]) -> None:
    _links_to_labs(page, text)
    text[0] = EVERY_LAB.sub("\n".join(f"labs/{slug}" for slug in exercises.LABS), text[0])  # in the course's order
    text[0] = CHANGED.get(page, str)(text[0])
    for mark, html in marks.get(page, {}).items():
        text[0] = text[0].replace(mark, html)


def _level_of_captions(_app, _page, _template, context, _tree) -> None:
    """The theme calls the captions of the side bar headings, but gives them no level (WCAG 4.1.2)."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def _copy_files(app, error) -> None:
    """Copy what pages load and download: pictures and notebooks."""
    if error is None and app.builder.format == "html":
        frames.copy(app.outdir / "_pictures")
        (app.outdir / "notebooks").mkdir(exist_ok=True)
        for path in labs.notebooks(labs.CLONE):
            shutil.copyfile(path, app.outdir / "notebooks" / path.name)


def setup(app) -> None:
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _read)
    app.connect("include-read", lambda _app, _path, page, text: _links_to_labs(page, text))
    app.connect("html-page-context", _level_of_captions, priority=900)  # after the theme
    app.connect("build-finished", _copy_files)
