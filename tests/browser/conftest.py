"""A real JupyterLab in a real Chromium: one server and one browser for the whole session."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from autograder.authors import build

from .page import Lab

THEME = "@jupyterlab/apputils-extension:themes"
CHROMIUM_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]


@pytest.fixture(scope="session")
def browser(need, chromium):
    """Debian's Chromium, headless."""
    need("chromium", chromium is not None, "apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api").sync_playwright().start()
    program = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
    yield program
    program.close()
    playwright.stop()


@contextlib.contextmanager
def served(command: list, home: Path, folder: Path | None = None, **more: str):
    """The address of the JupyterLab that `command` starts in `folder`; its settings and its log are in `home`."""
    log = (home / "server.log").open("w+")
    settings = {"JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data")}
    server = subprocess.Popen(
        list(map(str, command)),
        cwd=folder or home,
        stdout=log,
        stderr=log,
        env={**os.environ, **settings, "BROWSER": "true", **more},
        start_new_session=True,
    )
    try:
        yield _address(server, Path(log.name))
    finally:
        server.send_signal(signal.SIGTERM)  # the server ends its kernels
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
        log.close()


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory):
    """`hpcdl lab` over a copy of the labs; yields (its address, that folder)."""
    home = tmp_path_factory.mktemp("jupyter")
    labs = home / "labs"
    labs.mkdir()
    for path in [build.LABS_DIR / "README.md", *build.LABS_DIR.glob("*.ipynb")]:
        shutil.copy(path, labs)
    with served([sys.executable, "-m", "hpcdl", "lab", "--no-browser"], home) as address:
        yield address, labs


def _address(server: subprocess.Popen, log: Path, seconds: float = 60) -> str:
    """The address that the server prints, with its token."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"http://(?:localhost|127\.0\.0\.1):\d+/lab\S*token=\w+", log.read_text()):
            return found.group(0)
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start within {seconds} s:\n{log.read_text()[-3000:]}")


@pytest.fixture
def open_lab(browser, jupyter):
    """Open a solved lab by slug or file name in a page of 1400x900, or the blank one as a stranger: from the map."""
    address, labs = jupyter
    opened = []

    def open_(name: str, width: int = 1400, height: int = 900, stranger: bool = False) -> Lab:
        name = name if name.endswith(".ipynb") else f"{build.source_path(name).stem}.ipynb"
        slug = name.removesuffix(".ipynb").split("_", 1)[1]
        if slug in map(build.slug_of, build.sources()):
            notebook = (build.student if stranger else build.solved)(slug)
            (labs / name).write_text(build.write(notebook), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height})
        opened.append(Lab(context.new_page(), address, name, by_map=stranger))
        return opened[-1]

    yield open_
    for lab in opened:
        lab.close()


@pytest.fixture
def open_cells(open_lab, jupyter):
    """Open a notebook of these cells, made for a test, in a fresh page."""

    def open_(name: str, codes: list[str]) -> Lab:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        (jupyter[1] / name).write_text(nbformat.writes(notebook), encoding="utf-8")
        return open_lab(name)

    return open_


@pytest.fixture
def dark(jupyter, browser):
    """JupyterLab's dark theme, for this test."""
    address, _ = jupyter
    server, token = address.split("/lab")[0], address.split("token=")[1]
    page = browser.new_page()

    def choose(theme: str) -> None:
        url = f"{server}/lab/api/settings/{THEME}?token={token}"
        answer = page.request.put(url, data=json.dumps({"raw": json.dumps({"theme": theme})}))
        assert answer.ok, answer.text()

    choose("JupyterLab Dark")
    yield
    choose("JupyterLab Light")
    page.close()
