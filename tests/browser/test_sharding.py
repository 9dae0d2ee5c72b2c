"""`sharding` in a page: the picture moves, an engine is killed, a save that a kill ruins is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_its_picture_moves_and_a_save_in_place_is_explained(open_lab):
    lab = open_lab("sharding")
    lab.run_all(seconds=200)

    cell = lab.cell("does_it_fit.explorable()")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)
    for slider in cell.get_by_role("slider").all()[:2]:
        before = picture.get_attribute("src")
        slider.focus()
        slider.press("ArrowRight")
        lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    before = picture.get_attribute("src")
    cell.locator("select").first.select_option(index=2)
    lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    lab.screenshot("sharding_does_it_fit")

    lab.cell("axes.annotate").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("sharding_killed_and_resumed")
    verdict = lab.cell('check("sharding.sharded")').locator(".jp-OutputArea-output").first
    assert "25 / 25" in verdict.text_content()

    mistake = (
        'save = lambda disk, step, state, n, comm: disk.write(f"step-{step}-rank-{comm.rank}", state) or (comm.rank or '
    )
    mistake += 'disk.write("manifest", {"step": step, "p": comm.size, "n": n}))'
    wrong = lab.run_new_cell(f'{mistake}; check("sharding.save_load")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "All ranks are killed" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("sharding_killed")
    lab.assert_solved()
