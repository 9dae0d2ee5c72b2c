"""Lab 02 as a student meets it: run all, move a slider, see the picture change, read a verdict."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_lab_02_runs_its_slider_moves_the_picture_and_its_checks_answer(open_lab):
    lab = open_lab("02_gradient_descent.ipynb")
    lab.run_all(seconds=150)
    lab.page.wait_for_timeout(1000)
    lab.page.locator(".jp-Notebook .jp-Cell").first.scroll_into_view_if_needed()
    lab.screenshot("02_top")

    for name in ("descent_path", "learning_rates", "shards", "more_workers"):
        operate(lab, name)

    lab.assert_checked("gradient_descent.mse_grad", "10 / 10")
    lab.screenshot("02_check_passed")

    mistake = "mse_grad = lambda w, X, y: 2 * X.T @ (X @ w - y)"  # the gradient of a sum
    lab.assert_explained(f'{mistake}; check("gradient_descent.mse_grad")', "gradient of the sum", "02_check_failed")

    for name in ("sgd", "adam_step", "lr_schedule"):
        lab.cell(f'check("gradient_descent.{name}")')
        lab.screenshot(f"02_{name}")
    lab.assert_solved()


def operate(lab, name: str) -> None:
    """Every slider and box changes the picture; then four moves, timed."""
    explorable = lab.explorable(f"{name}.explorable()")
    for slider in range(len(explorable.sliders)):
        explorable.press(slider)
    lab.page.wait_for_timeout(300)
    lab.screenshot(f"02_{name}")
    print(f"{name}: slider to picture {explorable.milliseconds(keys=('ArrowRight', 'ArrowLeft')):.0f} ms, median of 4")
