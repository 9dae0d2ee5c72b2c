"""Lab 07 in the browser: the picture moves while four engines train."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.timeout(280)]


def test_the_picture_of_training_moves_while_the_engines_train(open_lab):
    lab = open_lab("07_ddp.ipynb")
    seen = []

    def watch():
        picture = lab.cell("TrainingFigure(epochs)").locator("img").first
        source = picture.get_attribute("src") if picture.count() else None
        if source and source not in seen[-1:]:
            seen.append(source)
            if len(seen) == 8:
                lab.screenshot("07_training")

    lab.run_all(seconds=200, meanwhile=watch)
    assert len(seen) >= 8, "the picture changed while the cell was running"
    lab.cell("TrainingFigure(epochs)")
    lab.screenshot("07_trained")
    lab.cell("replicas_identical =")
    lab.screenshot("07_replicas")
    lab.cell("def both_wait")
    lab.screenshot("07_deadlock")
