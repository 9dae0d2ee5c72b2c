"""On a narrow page pictures and plots scroll in their frames: their letters stay readable, and nothing else moves."""

import pytest

from hpcdl.widgets.kit.plots import LEAST

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(300)]
CELLS = [
    "from hpcdl.widgets import style; from hpcdl.widgets.pictures import PICTURES; style.use()",
    "PICTURES['six_tools']()",
    "PICTURES['perceptron_plane']()",
    "import matplotlib.pyplot as plt; plt.figure(figsize=(9.6, 3)); plt.plot([0, 1]); plt.show()",
]
SIZES = """[...document.querySelectorAll("img.widget-image, .hpcdl-clicks img, .hpcdl-light")].map((image) => [
    image.getBoundingClientRect().width / image.naturalWidth,
    image.getBoundingClientRect().height / image.naturalHeight,
    image.closest(".jp-OutputArea-output").scrollWidth / image.closest(".jp-OutputArea-output").clientWidth,
])"""


@pytest.mark.parametrize("width", [900, 1280])
def test_letters_do_not_shrink_with_the_page(open_cells, width):
    lab = open_cells(f"a_narrow_{width}.ipynb", CELLS)
    lab.page.set_viewport_size({"width": width, "height": 900})
    for cell in CELLS:
        lab.run_cell(cell, seconds=60)
    lab.page.locator("img.widget-image, .hpcdl-clicks img").nth(1).wait_for()
    found = lab.page.evaluate(SIZES)
    lab.screenshot(f"narrow_{width}")
    assert len(found) == 3
    for across, along, page in found:
        assert across >= LEAST - 0.01
        assert along == pytest.approx(across, abs=0.02)
        assert page <= 1.01
