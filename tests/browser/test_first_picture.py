"""From `hpcdl lab 01` to the first picture: what everybody waits for on the first evening."""

import sys
import time

import pytest

from autograder.authors import build

from .conftest import Lab, served

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(180)]

SECONDS = 12.0  # on two cores with nothing else to do


def test_the_first_picture_of_lab_01_is_there_within_twelve_seconds(browser, tmp_path):
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "01_calculus.ipynb").write_text(build.write(build.student("calculus")), encoding="utf-8")
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    begin = time.monotonic()
    with served([sys.executable, "-m", "hpcdl", "lab", "01", "--no-browser"], tmp_path) as address:
        lab = Lab(page, address, "01_calculus.ipynb")
        lab.run_cell("import math", seconds=60)
        lab.run_cell("secant.explorable()", seconds=60)
        lab.explorable("secant.explorable()")
        taken = time.monotonic() - begin
        lab.screenshot("first_picture")
        lab.close()
    print(f"{taken:.1f} s from the command to the first picture")
    assert taken < SECONDS
