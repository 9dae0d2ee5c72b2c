"""A check sees the kernel, not the page: beside its verdict stands whether the cell above has changed since it ran."""

import re

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs("gradient_descent"), pytest.mark.timeout(300)]
CHANGED = "The cell above has changed since it ran: run it, then check again."


def test_a_verdict_says_that_its_cell_has_changed_since_it_ran(open_lab):
    lab = open_lab("02_gradient_descent.ipynb")
    lab.run_cell("from autograder import check", seconds=60)
    lab.run_cell("def mse_grad")
    lab.run_cell('check("gradient_descent.mse_grad")')
    said = lab.cell('check("gradient_descent.mse_grad")').locator(".hpcdl-changed")
    assert said.text_content() == CHANGED
    assert not said.is_visible()

    lab.cell("def mse_grad").locator(".cm-content").click()
    lab.page.keyboard.press("Control+End")
    lab.page.keyboard.type(" + 0")
    said.wait_for(timeout=10_000)  # at once, before anybody checks again
    lab.run_cell('check("gradient_descent.mse_grad")')
    assert lab.cell('check("gradient_descent.mse_grad")').locator(".hpcdl-changed").is_visible()

    lab.run_cell("def mse_grad")
    lab.run_cell('check("gradient_descent.mse_grad")')
    assert not lab.cell('check("gradient_descent.mse_grad")').locator(".hpcdl-changed").is_visible()

    lab.cell("def mse_grad").locator(".cm-content").click()
    lab.page.keyboard.press("Control+End")
    lab.page.keyboard.type(")")
    lab.run_cell("def mse_grad")
    (card,) = lab.run_cell('check("gradient_descent.mse_grad")').locator(".hpcdl-check").all()
    assert re.search(r"mse_grad: not checked.*did not run: SyntaxError in line \d+", card.text_content())
