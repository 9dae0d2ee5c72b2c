"""A stranger's first ten minutes, in one go: the map, a picture, a mistake, an answer, a loop, handing in."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from autograder import build

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(280)]

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts" / "browser"
NAME = "02_gradient_descent.ipynb"
WALK = """def gradient_descent(grad, w0, lr, steps):
path = [w0]
for _ in range(steps):
path.append(path[-1] {} lr * grad(path[-1]))
"""
END = "\breturn torch.stack(path)"  # the editor indents by itself; a Backspace leaves the loop
LOOP = "def mse_loss(w, X, y):\nwhile True: pass"


class Stranger:
    """Eyes and hands on one page: clicks, keys, and what is to be read."""

    def __init__(self, page):
        self.page = page

    def see(self, name: str) -> None:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"first_{name}.png")

    def cell(self, text: str):
        return self.page.locator(
            ".jp-Notebook .jp-CodeCell", has=self.page.locator(".jp-InputArea", has_text=text)
        ).first

    def run(self, text: str, seconds: float = 30):
        """Click into the cell, Shift+Enter; the cell's output once it has its number."""
        cell = self.cell(text)
        before = cell.locator(".jp-InputPrompt").inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        deadline = time.monotonic() + seconds
        while (now := cell.locator(".jp-InputPrompt").inner_text()) == before or "*" in now:
            assert time.monotonic() < deadline, f"the cell with {text!r} ran for more than {seconds} s"
            self.page.wait_for_timeout(100)
        return cell.locator(".jp-OutputArea-output")

    def write(self, text: str, code: str) -> None:
        """Replace what stands in the cell, key by key, as one types."""
        self.cell(text).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        for key in code:
            self.page.keyboard.press({"\n": "Enter", "\b": "Backspace"}.get(key, key))
        self.page.keyboard.press("Escape")

    def check(self, name: str) -> str:
        verdict = self.run(f'check("gradient_descent.{name}")').first
        verdict.scroll_into_view_if_needed()
        return verdict.inner_text()


def test_from_the_map_to_the_file_that_is_handed_in(browser, jupyter):
    address, labs = jupyter
    notebook = labs / NAME
    notebook.write_text(build.write(build.student("gradient_descent")), encoding="utf-8")
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    stranger = Stranger(page)

    page.goto(address)
    page.get_by_role("link", name="02 gradient_descent").click(timeout=60_000)
    stranger.see("map")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    page.get_by_text("| Idle").wait_for(timeout=60_000)
    assert not page.locator(".jp-Dialog").count(), "nothing is asked before one may begin"

    stranger.run("import math")
    picture = stranger.run("descent_path.explorable()").locator("img").first
    picture.wait_for()
    before = picture.get_attribute("src")
    page.get_by_role("slider").first.press("ArrowRight")
    page.wait_for_function("([image, before]) => image.src !== before", arg=[picture.element_handle(), before])
    stranger.see("picture")

    stranger.run("def gradient_descent")
    assert "not" in stranger.check("gradient_descent")
    stranger.see("open")
    stranger.write("def gradient_descent", WALK.format("+") + END)
    stranger.run("def gradient_descent")
    said = stranger.check("gradient_descent")
    stranger.see("mistake")
    assert "uphill" in said
    stranger.write("def gradient_descent", WALK.format("-") + END)
    stranger.run("def gradient_descent")
    assert "10 / 10" in stranger.check("gradient_descent")
    stranger.see("solved")

    stranger.write("def mse_loss", LOOP)
    stranger.run("def mse_loss")
    said = stranger.check("mse_grad")
    stranger.see("loop")
    assert "while True" in said
    page.keyboard.press("Control+s")
    deadline = time.monotonic() + 20
    while "path.append" not in notebook.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, "what was written is in the file"
        page.wait_for_timeout(200)
    page.context.close()

    file = labs.parent / "handed_in.zip"
    command = [sys.executable, "-m", "hpcdl", "submit", notebook, "--out", file]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, file.exists()) == (1, False), ended.stdout
    assert "mse_grad" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    ended = subprocess.run([*command, "--anyway"], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, file.exists()) == (0, True), ended.stdout
