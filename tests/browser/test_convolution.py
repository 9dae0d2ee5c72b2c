"""Lab 05 as a student meets it: windows slide, products add up, algorithms race, a flipped kernel is named."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(300)]

FLIPPED = (
    "conv_direct = lambda x, w, stride=1, padding=0: functional.conv2d(x, w.flip(2, 3), stride=stride, padding=padding)"
)


def test_lab_05_runs_and_each_of_its_pictures_answers(open_lab):
    lab = open_lab("05_convolution.ipynb")
    lab.run_all(seconds=220)
    lab.page.wait_for_timeout(500)
    lab.page.locator(".jp-Notebook .jp-Cell").first.scroll_into_view_if_needed()
    lab.screenshot("05_top")
    for text, name, keys in (
        ("sliding_window.explorable()", "sliding_window", 3),
        ("winograd_products.explorable()", "winograd_products", 14),
        ("conv_gradient.explorable()", "conv_gradient", 4),
    ):
        explorable = lab.explorable(text)
        for _ in range(keys):
            explorable.press(0, "ArrowRight")
        lab.screenshot(f"05_{name}")
        timed = explorable.milliseconds(0, keys=("ArrowLeft", "ArrowRight"))
        print(f"{name}: slider to picture {timed:.0f} ms, median of 4 moves")
        explorable.press(len(explorable.sliders) - 1)
    race(lab)

    for text, name in (
        ('check("convolution.conv_kernel")', "kernel"),
        ("LAYERS = {", "layers"),
        ("convolution_race.explorable({**YOURS", "yours"),
        ("class MaxPool", "pooling"),
        ("def network", "way_back"),
    ):
        lab.cell(text).locator(".jp-OutputArea-output").last.scroll_into_view_if_needed()
        lab.page.wait_for_timeout(300)
        lab.screenshot(f"05_{name}")
    lab.assert_checked("convolution.conv_kernel", "15 / 15")
    lab.assert_solved()

    lab.assert_explained(f'{FLIPPED}; check("convolution.conv_direct")', "which this exercise forbids", "05_forbidden")


def race(lab) -> None:
    """A move is answered at once with what is predicted, and has measured all kernels a moment later."""
    explorable = lab.explorable("convolution_race.explorable()")
    lab.screenshot("05_race")
    explorable.press(0, "ArrowRight")
    image = explorable.picture
    lab.wait_until_changed(
        lambda: "Fourier stays the fastest" in (image.get_attribute("title") or image.get_attribute("alt") or ""), False
    )
    lab.screenshot("05_race_moved")
