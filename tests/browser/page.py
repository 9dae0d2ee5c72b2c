"""One notebook in a page, and the pictures in it, with the few gestures that a student makes."""

import re
import statistics
import time
from pathlib import Path

import pytest

from autograder import exercises

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts" / "browser"


class Lab:
    """One notebook in the browser, with the few gestures a student makes."""

    def __init__(self, page, address: str, name: str, by_map: bool = False):
        self.page, self.name = page, name
        server, token = re.fullmatch(r"(http://[^/]+)/.*token=(\w+)", address).groups()
        self.api = f"{server}/api/sessions?token={token}"
        if by_map:
            page.goto(f"{address}&reset", wait_until="domcontentloaded")
            link = page.get_by_role("link", name=Path(name).stem.replace("_", " ", 1))
            link.wait_for(timeout=60_000)
            self.screenshot("map")
            link.click()
            tab = page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text="map.ipynb")
            tab.locator(".lm-TabBar-tabCloseIcon").click()  # a notebook, too: cells are the lab's
            page.wait_for_timeout(500)  # where its kernel has told it its language, JupyterLab asks whether to save it
            if (discard := page.locator(".jp-Dialog").get_by_role("button", name="Discard")).count():
                discard.click()
        else:
            page.goto(f"{server}/lab/tree/{name}?token={token}&reset", wait_until="domcontentloaded")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
        self._wait(lambda: self.kernel_state() == "idle", 60, "the kernel to start")
        page.wait_for_timeout(500)  # the page learns of its kernel a moment after the server

    def kernel_state(self) -> str | None:
        """The state of this notebook's kernel as the server knows it."""
        sessions = self.page.request.get(self.api).json()
        return next((s["kernel"]["execution_state"] for s in sessions if s["path"] == self.name), None)

    def run_all(self, seconds: float, meanwhile=lambda: None) -> None:
        """Run every cell and wait until the last one has its number; call `meanwhile` three times a second."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_text("Run All Cells", exact=True).click()
        self._wait(lambda: meanwhile() or self._finished(), seconds, "all cells to run", pause=300)

    def assert_solved(self) -> None:
        """What tests/labs asks of a solved notebook without a page: nothing red, and the full total."""
        red = self.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']")
        assert not red.count(), red.first.text_content()
        points = exercises.load(self.name.removesuffix(".ipynb").split("_", 1)[1]).points
        shown = self.page.locator(".jp-OutputArea-output").all_text_contents()
        totals = [text for text in shown if " points" in text]
        assert any(f"{points:g} / {points:g}" in text for text in totals), f"the full total is not in {totals}"

    def _finished(self) -> bool:
        prompts = self.page.locator(".jp-CodeCell .jp-InputPrompt").all_text_contents()
        return bool(prompts) and all(re.fullmatch(r"\[\d+\]:", prompt.strip()) for prompt in prompts)

    def _wait(self, condition, seconds: float, what: str, pause: int = 100) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{self.name}: waited {seconds} s for {what}; see {self.screenshot('timeout')}")
            self.page.wait_for_timeout(pause)  # milliseconds

    def cell(self, text: str):
        """The first cell whose source holds `text`, scrolled into view."""
        cell = self.page.locator(".jp-Notebook .jp-Cell", has=self.page.locator(".jp-InputArea", has_text=text)).first
        cell.scroll_into_view_if_needed()
        return cell

    def run_cell(self, text: str, seconds: float = 30):
        """Click into the cell and press Shift+Enter; its outputs once it has its new number."""
        cell = self.cell(text)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.text_content()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self._wait(lambda: prompt.text_content() not in (before, "[*]:"), seconds, f"the cell with {text!r} to run")
        return cell.locator(".jp-OutputArea-output")

    def write(self, text: str, code: str) -> None:
        """Replace the cell's text key by key, as a person types; \\b is Backspace."""
        self.cell(text).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        for key in code:
            self.page.keyboard.press({"\n": "Enter", "\b": "Backspace"}.get(key, key))
        self.page.keyboard.press("Escape")

    def run_new_cell(self, code: str):
        """Add a cell below all that are drawn, type one line of code into it and run it; returns the cell."""
        self.page.locator(".jp-Notebook .jp-Cell").last.click()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("b")
        self.page.keyboard.press("Enter")
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Control+Enter")
        new = self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
        prompt = new.locator(".jp-InputPrompt")
        self._wait(lambda: re.fullmatch(r"\[\d+\]:", prompt.text_content().strip()), 30, "the new cell to run")
        return new

    def explorable(self, text: str) -> "Explorable":
        """The explorable that the cell with `text` shows."""
        return Explorable(self, self.cell(text))

    def assert_checked(self, exercise: str, points: str) -> None:
        """Assert that the cell that checks `exercise` shows these points: "20 / 20"."""
        output = self.cell(f'check("{exercise}")').locator(".jp-OutputArea-output").first
        assert points in output.text_content()
        output.scroll_into_view_if_needed()

    def assert_explained(self, code: str, said: str, name: str) -> None:
        """Run `code` in a new cell, assert that its output has `said`, and keep a screenshot."""
        output = self.run_new_cell(code).locator(".jp-OutputArea-output").first
        output.wait_for()
        assert said in output.text_content()
        output.scroll_into_view_if_needed()
        self.screenshot(name)

    def wait_until_changed(self, read, before, seconds: float = 10):
        """The new value of `read()` once it differs from `before`."""
        self._wait(lambda: read() != before, seconds, "the picture to change")
        return read()

    def close(self) -> None:
        """Close the page and end its kernel: eight labs' kernels and engines together would fill a small machine."""
        for session in self.page.request.get(self.api).json():
            if session["path"] == self.name:
                self.page.request.delete(self.api.replace("sessions?", f"sessions/{session['id']}?"))
        self.page.context.close()

    def screenshot(self, name: str) -> Path:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


class Explorable:
    """A picture and its controls, in one cell of a lab."""

    def __init__(self, lab: Lab, cell):
        self.lab, self.cell = lab, cell
        self.picture = cell.locator("img.widget-image, .hpcdl-clicks img").first
        self.picture.wait_for(timeout=20_000)
        self.sliders = cell.get_by_role("slider").all()

    def after(self, action) -> None:
        """Do `action` and wait until the picture is another."""
        before = self._source()
        action()
        self.lab.wait_until_changed(self._source, before)

    def press(self, slider: int, key: str = "") -> None:
        """Move a slider by a key, by default to where there is room; the picture must change."""
        now, low = (float(self.sliders[slider].get_attribute(f"aria-value{x}")) for x in ("now", "min"))
        key = key or ("ArrowLeft" if now > low else "ArrowRight")
        self.sliders[slider].focus()
        self.after(lambda: self.sliders[slider].press(key))

    def choose(self, option: int) -> None:
        """Choose an option of the first list; the picture must change."""
        self.after(lambda: self.cell.locator("select").first.select_option(index=option))

    def milliseconds(self, slider: int = 0, keys=("ArrowLeft",), moves: int = 4) -> float:
        """From a key press to the next picture, the median of `moves`, timed inside the page, which is not polled."""
        self.sliders[slider].focus()
        self.picture.evaluate(
            """image => {
                window.moves = [];
                document.addEventListener("keydown", () => { window.pressed = performance.now(); }, true);
                image.addEventListener("load", () => {
                    window.moves.push(performance.now() - window.pressed);
                    window.arrived();
                });
            }"""
        )
        for count in range(moves):
            self.lab.page.evaluate(
                """() => { window.next = new Promise((arrived, late) => {
                    window.arrived = arrived;
                    setTimeout(late, 10_000, "no new picture within 10 s of a key press");
                }); }"""
            )
            self.lab.page.keyboard.press(keys[count % len(keys)])
            self.lab.page.evaluate("window.next")
        return statistics.median(self.lab.page.evaluate("window.moves"))

    def _source(self) -> str | None:
        return self.picture.get_attribute("src")
