"""Lab 01 as a student meets it: run all, operate each picture, read a verdict."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(240)]


def test_lab_01_runs_and_each_of_its_pictures_answers(open_lab):
    lab = open_lab("01_calculus.ipynb")
    lab.run_all(seconds=120)
    lab.page.wait_for_timeout(500)
    for name in ("secant", "step_error", "surface"):
        operate(lab, name)
    lab.assert_checked("calculus.Dual", "25 / 25")
    lab.assert_solved()


def operate(lab, name: str) -> None:
    """Every slider by its keys, every list and box by hand: each changes the picture; then four moves, timed."""
    explorable = lab.explorable(f"{name}.explorable()")
    for slider in range(len(explorable.sliders)):
        explorable.press(slider)
    for options in explorable.cell.locator("select").all():
        last = options.locator("option").count() - 1
        explorable.after(lambda options=options, last=last: options.select_option(index=last))
    for box in explorable.cell.locator("input[type=checkbox]").all():
        explorable.after(box.check)
    lab.screenshot(f"01_{name}")
    print(f"{name}: slider to picture {explorable.milliseconds():.0f} ms, median of 4 moves")
