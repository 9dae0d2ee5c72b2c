"""`frameworks` in a page: the picture moves, the table is filled in, a wrong rank is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(400)]


def test_lab_runs_its_picture_moves_and_local_rank_is_explained(open_lab):
    lab = open_lab("frameworks")
    lab.run_all(seconds=300)

    picture = lab.explorable("six_tools.explorable()")
    picture.press(0, "ArrowRight")
    picture.choose(2)
    lab.screenshot("frameworks_six_tools")

    table = lab.cell("def row(name").locator(".jp-OutputArea-output").first
    assert all(way in table.text_content() for way in ("DDP", "FSDP2", "DTensor", "hpcdl.sharding"))
    table.scroll_into_view_if_needed()
    lab.screenshot("frameworks_table")

    mistake = 'place = lambda env: (int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"]), "cuda:" + env["LOCAL_RANK"])'
    lab.assert_explained(
        f'{mistake}; check("frameworks.torchrun")', "LOCAL_RANK counts on one machine", "frameworks_local_rank"
    )
    lab.assert_solved()
