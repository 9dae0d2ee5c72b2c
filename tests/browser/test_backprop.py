"""Lab 04 as a student meets it: run all, press Next through the stages, move each slider, read a verdict."""

import statistics
import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


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
    ):
        operate(lab, text, name, clicks)
    verdict = lab.cell('check("backprop.backward")').locator(".jp-OutputArea-output").first
    verdict.scroll_into_view_if_needed()
    assert "15 / 15" in verdict.inner_text()
    lab.screenshot("04_check")
    assert not lab.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count()


def operate(lab, text: str, name: str, clicks: int) -> None:
    """Next through all stages, Back once, every slider by its keys; then twenty moves, timed."""
    cell = lab.cell(text)
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)

    def source():
        return picture.get_attribute("src")

    if clicks:
        buttons = [("Next", clicks), ("Back", 1)]
        for label, times in buttons:
            for _ in range(times):
                before = source()
                cell.get_by_role("button", name=label).click()
                lab.wait_until_changed(source, before)
        cell.get_by_role("button", name="Next").click()  # at the last stage every slider matters
    for slider in cell.get_by_role("slider").all():
        before = source()
        slider.focus()
        slider.press("ArrowLeft")
        lab.wait_until_changed(source, before)
    lab.screenshot(f"04_{name}")
    slider, seconds = cell.get_by_role("slider").nth(1 if clicks == 9 else 0), []
    for i in range(20):
        before, begin = source(), time.perf_counter()
        slider.press("ArrowLeft" if i % 2 else "ArrowRight")
        while source() == before and time.perf_counter() - begin < 5:
            pass
        seconds.append(time.perf_counter() - begin)
    print(f"{name}: slider to picture {1000 * statistics.median(seconds):.0f} ms median of 20 moves")
