"""`own_stack` in the browser: the bricks turn, four engines train with the student's own, and all lines are theirs."""

import pytest

from tests.labs.learned import PROBES, assert_learned

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(400)]


def test_lab_turns_its_bricks_and_says_all_yours(open_lab):
    lab = open_lab("own_stack")
    lab.run_all(seconds=300)
    before = lab.explorable("own_stack.explorable()")
    before.press(0)
    lab.cell("own_stack.explorable()").locator("select").first.select_option(index=6)
    lab.page.wait_for_timeout(300)
    lab.screenshot("own_stack_lent")
    said = lab.cell("told(results, lines)").last.locator(".jp-OutputArea-output").first
    assert (
        "all yours"
        in lab.cell("results, lines = training(epochs)").locator(".jp-OutputArea-output").first.text_content()
    )
    said.scroll_into_view_if_needed()
    lab.cell("own_stack.explorable(lines)").scroll_into_view_if_needed()
    lab.screenshot("own_stack_yours")
    lab.assert_solved()
    said = lab.cell("short, _ = training(1)").locator(".jp-OutputArea-output").all_text_contents()
    said += lab.run_new_cell(PROBES["own_stack"]).locator(".jp-OutputArea-output").all_text_contents()
    assert_learned("own_stack", "\n".join(said))
