"""`sharding` in a page: the picture moves, an engine is killed, a save that a kill ruins is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_its_picture_moves_and_a_save_in_place_is_explained(open_lab):
    lab = open_lab("sharding")
    lab.run_all(seconds=200)

    picture = lab.explorable("does_it_fit.explorable()")
    for slider in range(len(picture.sliders[:2])):
        picture.press(slider, "ArrowRight")
    picture.choose(2)
    lab.screenshot("sharding_does_it_fit")

    lab.cell("axes.annotate").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("sharding_killed_and_resumed")
    lab.assert_checked("sharding.sharded", "25 / 25")

    mistake = (
        'save = lambda disk, step, state, n, comm: disk.write(f"step-{step}-rank-{comm.rank}", state) or (comm.rank or '
    )
    mistake += 'disk.write("manifest", {"step": step, "p": comm.size, "n": n}))'
    lab.assert_explained(f'{mistake}; check("sharding.save_load")', "All ranks are killed", "sharding_killed")
    lab.assert_solved()
