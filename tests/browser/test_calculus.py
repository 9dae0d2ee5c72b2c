"""Lab 01 as a student meets it: run all, operate each picture, read a verdict."""

import statistics

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_lab_01_runs_and_each_of_its_pictures_answers(open_lab):
    lab = open_lab("01_calculus.ipynb")
    lab.run_all(seconds=120)
    lab.page.wait_for_timeout(500)
    for name in ("secant", "step_error", "surface"):
        operate(lab, name)
    verdict = lab.cell('check("calculus.Dual")').locator(".jp-OutputArea-output").first
    verdict.scroll_into_view_if_needed()
    assert "25 / 25" in verdict.inner_text()
    assert not lab.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count()


def operate(lab, name: str) -> None:
    """Every slider by its keys, every list and box by hand: each changes the picture; then twenty moves, timed."""
    cell = lab.cell(f"{name}.explorable()")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)

    def source():
        return picture.get_attribute("src")

    sliders = cell.get_by_role("slider").all()
    for slider in sliders:
        before = source()
        slider.focus()
        slider.press("ArrowLeft")
        lab.wait_until_changed(source, before)
    for options in cell.locator("select").all():
        before = source()
        options.select_option(index=options.locator("option").count() - 1)
        lab.wait_until_changed(source, before)
    for box in cell.locator("input[type=checkbox]").all():
        before = source()
        box.check()
        lab.wait_until_changed(source, before)
    lab.screenshot(f"01_{name}")
    print(f"{name}: slider to picture {median_milliseconds(sliders[0], picture):.0f} ms, median of 20 moves")


def median_milliseconds(slider, picture) -> float:
    """From a key press to the next picture, timed in the page itself."""
    picture.evaluate(
        """image => {
            window.moves = [];
            document.addEventListener("keydown", () => { window.pressed = performance.now(); }, true);
            image.addEventListener("load", () => { window.moves.push(performance.now() - window.pressed); });
        }"""
    )
    for count in range(1, 21):
        slider.press("ArrowLeft")
        slider.page.wait_for_function(f"window.moves.length >= {count}", timeout=10_000)
    return statistics.median(slider.page.evaluate("window.moves"))
