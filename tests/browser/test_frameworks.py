"""`frameworks` in a page: the picture moves, the table is filled in, a wrong rank is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(400)]


def test_lab_runs_its_picture_moves_and_local_rank_is_explained(open_lab):
    lab = open_lab("frameworks")
    lab.run_all(seconds=300)

    cell = lab.cell("six_tools.explorable()")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)
    before = picture.get_attribute("src")
    slider = cell.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowRight")
    lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    before = picture.get_attribute("src")
    cell.locator("select").first.select_option(index=2)
    lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    lab.screenshot("frameworks_six_tools")

    table = lab.cell("def row(name").locator(".jp-OutputArea-output").first
    assert all(way in table.text_content() for way in ("DDP", "FSDP2", "DTensor", "hpcdl.sharding"))
    table.scroll_into_view_if_needed()
    lab.screenshot("frameworks_table")

    mistake = 'place = lambda env: (int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"]), "cuda:" + env["LOCAL_RANK"])'
    wrong = lab.run_new_cell(f'{mistake}; check("frameworks.torchrun")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "LOCAL_RANK counts on one machine" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("frameworks_local_rank")
    lab.assert_solved()
