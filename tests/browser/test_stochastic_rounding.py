"""Lab 06 as a student meets it: run all, move every slider of the four pictures, press the button, read a verdict."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(280)]

PICTURES = ("number_line", "running_mean", "stalling_sum", "low_precision_training")


def test_lab_06_runs_and_each_of_its_pictures_answers(open_lab):
    lab = open_lab("06_stochastic_rounding.ipynb")
    lab.run_all(seconds=200)
    lab.page.wait_for_timeout(500)
    lab.page.locator(".jp-Notebook .jp-Cell").first.scroll_into_view_if_needed()
    lab.screenshot("06_top")
    for name in PICTURES:
        explorable = lab.explorable(f"{name}.explorable()")
        for slider in range(len(explorable.sliders)):
            explorable.press(slider)
        lab.screenshot(f"06_{name}")
        milliseconds = explorable.milliseconds(0, keys=("ArrowLeft", "ArrowRight"))
        print(f"{name}: slider to picture {milliseconds:.0f} ms, median of 4 moves")
    button = explorable.cell.get_by_role("button", name="Train now")
    explorable.after(button.click)
    lab._wait(button.is_enabled, 60, "the training to end")
    lab.screenshot("06_train_now")
    for text, name in (
        ("with LiveFigure(draw_curves)", "06_live"),
        ('check("stochastic_rounding.rounding_kernel")', "06_check"),
    ):
        cell = lab.cell(text)
        cell.locator(".jp-OutputArea-output").last.scroll_into_view_if_needed()
        lab.screenshot(name)
    assert "10 / 10" in cell.locator(".jp-OutputArea-output").first.text_content()
    lab.assert_solved()
