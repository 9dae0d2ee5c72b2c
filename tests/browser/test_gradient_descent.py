"""Lab 02 as a student meets it: run all, move a slider, see the picture change, read a verdict."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_lab_02_runs_its_slider_moves_the_picture_and_its_checks_answer(open_lab):
    lab = open_lab("02_gradient_descent.ipynb")
    lab.run_all(seconds=150)
    lab.page.wait_for_timeout(1000)
    lab.page.locator(".jp-Notebook .jp-Cell").first.scroll_into_view_if_needed()
    lab.screenshot("02_top")

    cell = lab.cell("descent_path.explorable()")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)

    def source():
        return picture.get_attribute("src")

    slider = cell.get_by_role("slider").first
    slider.focus()
    before = source()
    slider.press("ArrowRight")
    after = lab.wait_until_changed(source, before)
    for _ in range(10):
        slider.press("ArrowRight")
    lab.wait_until_changed(source, after)
    lab.page.wait_for_timeout(300)
    lab.screenshot("02_explorable")

    verdict = lab.cell('check("gradient_descent.mse_grad")').locator(".jp-OutputArea-output").first
    verdict.scroll_into_view_if_needed()
    assert "10 / 10" in verdict.inner_text()
    lab.screenshot("02_check_passed")

    mistake = "mse_grad = lambda w, X, y: 2 * X.T @ (X @ w - y)"  # the gradient of a sum
    wrong = lab.run_new_cell(f'{mistake}; check("gradient_descent.mse_grad")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "gradient of the sum" in wrong.inner_text()
    wrong.scroll_into_view_if_needed()
    lab.page.wait_for_timeout(300)
    lab.screenshot("02_check_failed")

    for name in ("sgd", "adam_step", "lr_schedule"):
        lab.cell(f'check("gradient_descent.{name}")')
        lab.screenshot(f"02_{name}")
    assert not lab.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count()
