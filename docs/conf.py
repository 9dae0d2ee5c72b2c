"""The site: `make docs` writes it to docs/_build."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import teaching_pages  # noqa: E402

import hpcdl  # noqa: E402

project = "hpcdl"
author = copyright = "the hpcdl authors"
release = version = hpcdl.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"hpcdl {release}"
html_show_sphinx = False
suppress_warnings = ["myst.header"]  # a page that is included begins at its own level

NOTEBOOK_LINK = re.compile(r"\[([^\]]+)\]\([\w./]*\.ipynb\)")


def _names_of_notebooks(app, *where_and_text) -> None:
    """Notebooks are opened in JupyterLab, not here: their links become names."""
    text = where_and_text[-1]
    text[0] = NOTEBOOK_LINK.sub(r"**\1**", text[0])


def setup(app) -> None:
    app.connect("builder-inited", lambda app: api_pages.write(HERE / "api"))
    app.connect("builder-inited", lambda app: teaching_pages.write(HERE / "teaching" / "labs"))
    app.connect("source-read", _names_of_notebooks)
    app.connect("include-read", _names_of_notebooks)
