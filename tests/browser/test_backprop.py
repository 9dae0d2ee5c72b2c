"""Lab 04 as a student meets it: run all, press Next through the stages, move each slider, read a verdict."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(240)]


def test_lab_04_runs_and_each_of_its_pictures_answers(open_lab):
    lab = open_lab("04_backprop.ipynb")
    lab.run_all(seconds=150)
    lab.page.wait_for_timeout(500)
    lab.page.locator(".jp-Notebook .jp-Cell").first.scroll_into_view_if_needed()
    lab.screenshot("04_top")
    for text, name, clicks in (
        ("backprop_picture.explorable()", "backprop", 9),
        ("value_graph.explorable()", "value_graph", 4),
        ("gradient_norms.explorable()", "gradient_norms", 0),
        ("three_sets.explorable()", "three_sets", 0),
    ):
        operate(lab, text, name, clicks)
    lab.assert_checked("backprop.backward", "15 / 15")
    lab.screenshot("04_check")
    lab.assert_solved()


def operate(lab, text: str, name: str, clicks: int) -> None:
    """Next through all stages, Back once, every slider by its keys; then four moves, timed."""
    explorable = lab.explorable(text)
    for label, times in (("Next", clicks), ("Back", clicks and 1), ("Next", clicks and 1)):
        for _ in range(times):
            explorable.after(explorable.cell.get_by_role("button", name=label).click)
    for slider in reversed(range(len(explorable.sliders))):
        is_stage = clicks and slider == 0  # the stage comes first on the page: at the last one all others matter
        explorable.press(slider, "ArrowLeft" if is_stage else "ArrowRight")
    lab.screenshot(f"04_{name}")
    timed = explorable.milliseconds(-1 if name == "gradient_norms" else 0, keys=("ArrowRight", "ArrowLeft"))
    print(f"{name}: slider to picture {timed:.0f} ms, median of 4 moves")
