"""Questions on a student's own program, on the page: after full points, by keyboard and mouse, kept over a run."""

import pytest

from autograder.authors import build
from hpcdl.guesses import NAME, OWN, Ledger

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(600)]

ASK, CHECK, SOLVE = '"collectives.tree_reduce",', 'check("collectives.tree_reduce")', "def tree_reduce"


@pytest.fixture
def page(open_cells, jupyter):
    """A notebook with the first exercise of lab 08, its check and its questions, in a kernel that asks."""
    lab = build.code("collectives")
    cells = [next(code for code in lab if text in code) for text in ("import torch", SOLVE, CHECK, ASK)]
    folder = jupyter[1]
    cells[0] = f"import os\n\nos.environ['HPCDL_GUESSES'] = {str(folder / NAME)!r}\n{cells[0]}"
    yield lambda: open_cells("my_program.ipynb", cells)
    (folder / NAME).unlink(missing_ok=True)


def solve(lab) -> None:
    for text in ("import os", SOLVE, CHECK):
        lab.run_cell(text, seconds=120)


def asked_in(lab):
    """The three questions."""
    lab.run_cell(ASK, seconds=60)
    lab.cell(ASK).locator(".hpcdl-guess").nth(2).wait_for(timeout=10_000)
    return lab.cell(ASK).locator(".hpcdl-guess")


def test_three_questions_are_answered_and_kept(page, jupyter):
    lab = page()
    lab.run_cell("import os", seconds=120)
    assert "Waiting for your tree_reduce" in " ".join(lab.run_cell(ASK).all_text_contents())
    solve(lab)
    asked = asked_in(lab)
    lab.screenshot("your_program")
    box = asked.nth(0).get_by_label("how many bytes does rank 5 send?")
    box.fill("8,000")
    box.press("Enter")
    asked.nth(0).get_by_text("You guessed 8,000 bytes, it was 4,000 bytes: 2 times too high.").wait_for(timeout=10_000)
    asked.nth(1).get_by_role("radio").last.check()
    asked.nth(1).get_by_role("button", name="That is my guess").click()
    asked.nth(1).get_by_text("right.").wait_for(timeout=10_000)
    asked.nth(2).get_by_role("radio", name="6").check()
    asked.nth(2).get_by_role("button", name="That is my guess").click()
    asked.nth(2).get_by_text("Rank 0 waits on line ").wait_for(timeout=10_000)
    lab.screenshot("your_program_answered")
    kept = Ledger(jupyter[1] / NAME)
    assert not kept.guesses
    assert set(kept.answers) == {f"{OWN}collectives.tree_reduce.{what}" for what in ("bytes", "line", "absent")}
    assert asked_in(lab).nth(2).get_by_text("You guessed 6: it was 3.").is_visible(), "it is kept"


@pytest.mark.long  # a second page
def test_the_questions_can_be_read_on_a_dark_page(page, dark):
    lab = page()
    solve(lab)
    asked = asked_in(lab)
    lab.screenshot("your_program_dark")
    asked.nth(1).get_by_role("button", name="I'd rather see").click()
    asked.nth(1).get_by_text("It was line ").wait_for(timeout=10_000)
    lab.screenshot("your_program_dark_answered")
