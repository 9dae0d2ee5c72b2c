"""`scaling` in a page: its pictures move, engines measure buckets, buckets of one layer each are explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_and_single_layer_buckets_are_explained(open_lab):
    lab = open_lab("scaling")
    lab.run_all(seconds=200)

    for code in ("speed_up.explorable()", "loss_scale.explorable()"):
        picture = lab.explorable(code)
        picture.press(0, "ArrowRight")
        picture.choose(2)
        lab.screenshot(f"scaling_{code.split('.')[0]}")

    lab.cell("the best: {len(best)} buckets").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("scaling_buckets")
    lab.assert_checked("scaling.fusion", "25 / 25")

    mistake = "fuse = lambda gradients, alpha, beta: list(gradients)"
    lab.assert_explained(f'{mistake}; check("scaling.fusion")', "each pays an alpha", "scaling_layer_by_layer")
    lab.assert_solved()
