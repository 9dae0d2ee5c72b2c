"""A stranger's first ten minutes, in one go: the map, a picture, a mistake, an answer, a loop, handing in."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(280)]

NAME = "02_gradient_descent.ipynb"
WALK = """def gradient_descent(grad, w0, lr, steps):
path = [w0]
for _ in range(steps):
path.append(path[-1] {} lr * grad(path[-1]))
"""
END = "\breturn torch.stack(path)"  # the editor indents by itself; a Backspace leaves the loop
LOOP = "def mse_loss(w, X, y):\nwhile True: pass"


def test_from_the_map_to_the_file_that_is_handed_in(open_lab, jupyter):
    lab = open_lab(NAME, stranger=True)
    assert not lab.page.locator(".jp-Dialog").count(), "nothing is asked before one may begin"

    def check(name: str, picture: str) -> str:
        verdict = lab.run_cell(f'check("gradient_descent.{name}")').first
        verdict.scroll_into_view_if_needed()
        lab.screenshot(f"first_{picture}")
        return verdict.text_content()

    lab.run_cell("import math")
    lab.run_cell("descent_path.explorable()")
    lab.explorable("descent_path.explorable()").press(0)
    lab.screenshot("first_picture")

    lab.run_cell("def gradient_descent")
    assert "not done yet" in check("gradient_descent", "open")
    lab.write("def gradient_descent", WALK.format("+") + END)
    lab.run_cell("def gradient_descent")
    assert "uphill" in check("gradient_descent", "mistake")
    lab.write("def gradient_descent", WALK.format("-") + END)
    lab.run_cell("def gradient_descent")
    assert "10 / 10" in check("gradient_descent", "solved")

    lab.write("def mse_loss", LOOP)
    lab.run_cell("def mse_loss")
    assert "while True" in check("mse_grad", "loop")
    lab.page.keyboard.press("Control+s")
    notebook = jupyter[1] / NAME
    lab.wait_until_changed(lambda: "path.append" in notebook.read_text(encoding="utf-8"), False, seconds=20)

    file = notebook.with_name("handed_in.zip")
    command = [sys.executable, "-m", "hpcdl", "submit", notebook, "--out", file]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, file.exists()) == (1, False), ended.stdout
    assert "mse_grad" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    ended = subprocess.run([*command, "--anyway"], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, file.exists()) == (0, True), ended.stdout
