"""`scaling` in a page: its pictures move, engines measure buckets, buckets of one layer each are explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_its_pictures_move_and_buckets_of_one_layer_each_are_explained(open_lab):
    lab = open_lab("scaling")
    lab.run_all(seconds=200)

    for code in ("speed_up.explorable()", "loss_scale.explorable()"):
        cell = lab.cell(code)
        picture = cell.locator("img.widget-image").first
        picture.wait_for(timeout=20_000)
        before = picture.get_attribute("src")
        slider = cell.get_by_role("slider").first
        slider.focus()
        slider.press("ArrowRight")
        lab.wait_until_changed(lambda picture=picture: picture.get_attribute("src"), before)
        before = picture.get_attribute("src")
        cell.locator("select").first.select_option(index=2)
        lab.wait_until_changed(lambda picture=picture: picture.get_attribute("src"), before)
        lab.screenshot(f"scaling_{code.split('.')[0]}")

    lab.cell("the best: {len(best)} buckets").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("scaling_buckets")
    verdict = lab.cell('check("scaling.fusion")').locator(".jp-OutputArea-output").first
    assert "25 / 25" in verdict.text_content()

    mistake = "fuse = lambda gradients, alpha, beta: list(gradients)"
    wrong = lab.run_new_cell(f'{mistake}; check("scaling.fusion")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "each pays an alpha" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("scaling_layer_by_layer")
    lab.assert_solved()
