"""A guess on the page: asked, made by keyboard, answered by the experiment, kept over a restart, shown in the map."""

import os

import nbformat
import pytest

from autograder.authors import build
from hpcdl.guesses import NAME, Ledger

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(600)]

PICK, DIGITS = '"tensors.pick",', '"tensors.digits",'
REAL = "data, generator = digits()"


@pytest.fixture
def my_lab(open_lab, jupyter):
    """Lab 00 with its solutions, in kernels that ask for guesses; the other tests' do not."""
    folder = jupyter[1]
    ask = f"import os\n\nos.environ['HPCDL_GUESSES'] = {str(folder / NAME)!r}"
    for name, notebook in (("my_lab.ipynb", build.solved("tensors")), ("my_map.ipynb", build.the_map())):
        notebook.cells.insert(0, nbformat.v4.new_code_cell(ask))
        (folder / name).write_text(nbformat.writes(notebook), encoding="utf-8")
    yield open_lab
    (folder / NAME).unlink(missing_ok=True)


NEEDED = ("import os", "from autograder import check", "def shares", "def cut", "def descend", "def epochs")


def begin(lab, cells=NEEDED) -> None:
    """The cells that the experiment needs."""
    for text in cells:
        lab.run_cell(text, seconds=120)


def say(lab, text: str) -> str:
    """What the cell with `text` shows after it has run."""
    return " ".join(lab.run_cell(text, seconds=120).all_text_contents())


def test_a_guess_is_asked_made_answered_kept_and_shown(my_lab, jupyter):
    lab = my_lab("my_lab.ipynb")
    begin(lab)
    assert say(lab, REAL).startswith("First your guess")
    choose(lab)
    assert say(lab, REAL).startswith("First your guess"), "of two guesses one is made"
    guess_by_keyboard(lab, DIGITS, "80")
    guess_by_keyboard(lab, '"tensors.half",', "5")
    said = say(lab, REAL)
    assert "You guessed 80 of 100, it was 95" in said
    assert "times too low" in said
    lab.cell(REAL).locator(".hpcdl-revealed").last.scroll_into_view_if_needed()
    lab.screenshot("guess_revealed")
    restart(lab)
    begin(lab, (NEEDED[-1], *NEEDED[:-1]))  # another order: that a cell ran is seen by its new number
    assert "You guessed 80 of 100" in say(lab, REAL), "it counts after a restart"
    assert "You guessed 80 of 100" in say(lab, DIGITS)
    assert set(Ledger(jupyter[1] / NAME).guesses) == {"tensors.pick", "tensors.digits", "tensors.half"}
    look_at_the_map(my_lab)


def choose(lab) -> None:
    """A choice with the arrow keys; its answer comes at once."""
    lab.run_cell(PICK, seconds=60)
    asked = lab.cell(PICK).locator(".hpcdl-guess")
    asked.get_by_role("radio", name="(3,)").focus()
    lab.page.keyboard.press("ArrowDown")
    lab.screenshot("guess_choice")
    asked.get_by_role("button", name="That is my guess").click()
    asked.get_by_role("status").wait_for(timeout=10_000)
    assert "You guessed (3, 1): right." in asked.get_by_role("status").text_content()


def guess_by_keyboard(lab, text: str, number: str) -> None:
    lab.run_cell(text, seconds=60)
    asked = lab.cell(text).locator(".hpcdl-guess")
    box = asked.get_by_label("how many will it read correctly" if "digits" in text else "upper 16 bits")
    box.fill("a lot")
    box.press("Enter")
    asked.get_by_text("A number above 0, please").wait_for(timeout=10_000)
    lab.screenshot("guess_problem")
    box.fill(number)
    box.press("Enter")
    asked.get_by_text(f"Your guess: {number} of 100. Now run the cell below.").wait_for(timeout=10_000)
    lab.screenshot("guess_made")


def restart(lab) -> None:
    """By the server, as Kernel → Restart Kernel does: the page keeps its outputs."""
    session = next(s for s in lab.page.request.get(lab.api).json() if s["path"] == lab.name)
    address = lab.api.replace("sessions?", f"kernels/{session['kernel']['id']}/restart?")
    assert lab.page.request.post(address, headers=xsrf(lab)).ok
    lab._wait(lambda: lab.kernel_state() in ("idle", "starting"), 60, "the kernel to come back")
    lab.page.wait_for_timeout(1500)


def xsrf(lab) -> dict:
    cookies = {cookie["name"]: cookie["value"] for cookie in lab.page.context.cookies()}
    return {"X-XSRFToken": cookies.get("_xsrf", "")}


def look_at_the_map(open_lab) -> None:
    here = open_lab("my_map.ipynb")
    here.run_cell("import os", seconds=60)
    here.run_cell("where_am_i()", seconds=120)
    shown = here.cell("where_am_i()")
    picture = shown.locator("img.widget-image")
    picture.wait_for(timeout=20_000)
    here.screenshot("map_table")
    assert "2 numbers guessed" in picture.get_attribute("title")
    assert shown.get_by_role("link", name="02 · gradient descent").first.is_visible()
    picture.scroll_into_view_if_needed()
    here.page.wait_for_timeout(500)
    here.screenshot("map_guesses")
    shown.get_by_role("button", name="Forget my guesses").click()
    shown.get_by_text("3 guesses forgotten").wait_for(timeout=10_000)
    here.wait_until_changed(lambda: "No guesses yet" in picture.get_attribute("title"), False)


@pytest.mark.long  # a second page
def test_the_questions_can_be_read_on_a_small_dark_page(my_lab, dark):
    lab = my_lab("my_lab.ipynb", width=1000, height=700)
    begin(lab)
    for text in (PICK, DIGITS):
        lab.run_cell(text, seconds=60)
        lab.cell(text).locator(".hpcdl-guess").wait_for(timeout=10_000)
        lab.cell(text).scroll_into_view_if_needed()
        lab.screenshot(f"guess_dark_{text.strip(',').strip(chr(34))}")
    box = lab.cell(DIGITS).locator(".hpcdl-guess").bounding_box()
    assert box["x"] + box["width"] <= 1000
    here = my_lab("my_map.ipynb", width=1000, height=700)
    here.run_cell("import os", seconds=60)
    here.run_cell("where_am_i()", seconds=120)
    here.cell("where_am_i()").locator("img.widget-image").wait_for(timeout=20_000)
    here.screenshot("map_dark")
    assert os.environ["HPCDL_GUESSES"] == "off", "of this process, and of every other page"
