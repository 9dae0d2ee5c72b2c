"""Pictures in a real page follow its theme, also when it changes under them."""

import io

import numpy as np
import pytest
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(300)]
CODE = "from hpcdl.widgets.pictures import PICTURES; PICTURES['secant']()"


PLOT = "from hpcdl.widgets import style; style.use(); import matplotlib.pyplot as plt; plt.plot([0, 1]); plt.show()"


def test_a_plot_of_the_notebook_follows_the_theme(open_cells, dark):
    lab = open_cells("a_plot.ipynb", [PLOT])
    lab.run_cell("plt", seconds=60)

    def seen() -> list[str]:
        return [image.get_attribute("class") for image in lab.cell("plt").locator("img").all() if image.is_visible()]

    assert seen() == ["hpcdl-dark"]
    plot = Image.open(io.BytesIO(lab.cell("plt").locator(".hpcdl-dark").screenshot()))
    assert plot.width > 300
    assert np.median(np.asarray(plot.convert("L"))) < 40
    lab.screenshot("theme_dark_plot")
    lab.page.get_by_role("menuitem", name="Settings", exact=True).click()
    lab.page.get_by_text("Theme", exact=True).hover()
    lab.page.get_by_text("JupyterLab Light", exact=True).click()
    lab._wait(lambda: seen() == ["hpcdl-light"], 20, "the plot to turn light")


def test_a_picture_follows_the_theme(open_cells, dark):
    lab = open_cells("a_themed.ipynb", [CODE])
    lab.run_cell("PICTURES", seconds=60)
    picture = lab.explorable("PICTURES").picture

    def brightness() -> float:
        return float(np.median(np.asarray(Image.open(io.BytesIO(picture.screenshot())).convert("L"))))

    lab._wait(lambda: brightness() < 40, 20, "the picture to turn dark")
    lab.screenshot("theme_dark")
    lab.page.get_by_role("menuitem", name="Settings", exact=True).click()
    lab.page.get_by_text("Theme", exact=True).hover()
    lab.page.get_by_text("JupyterLab Light", exact=True).click()
    lab._wait(lambda: brightness() > 200, 20, "the picture to turn light again")
    lab.screenshot("theme_light")
