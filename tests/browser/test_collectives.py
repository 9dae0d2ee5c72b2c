"""Lab 08 as a student meets it: messages play, pictures move, engines are measured, a check explains a deadlock."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_08_runs_its_pictures_move_and_a_deadlock_is_explained(open_lab):
    lab = open_lab("08_collectives.ipynb")
    lab.run_all(seconds=200)

    for number, (text, keys) in enumerate(
        {
            "topology.explorable()": ["ArrowRight"] * 4,
            "topology.explorable(recursive_doubling_all_reduce)": ["ArrowRight"],
            'message_cost.explorable({"one message"': ["ArrowLeft"] * 3,
            "best_map.explorable(cost)": ["ArrowRight"],
        }.items()
    ):
        cell = lab.cell(text)
        picture, slider = cell.locator("img.widget-image").first, cell.get_by_role("slider").first
        picture.wait_for(timeout=20_000)
        slider.focus()
        for key in keys:
            before = picture.get_attribute("src")
            slider.press(key)
            lab.wait_until_changed(lambda picture=picture: picture.get_attribute("src"), before)
        lab.page.wait_for_timeout(200)
        lab.screenshot(f"08_picture_{number}")

    cell = lab.cell("topology.explorable()")
    picture = cell.locator("img.widget-image").first
    before = picture.get_attribute("src")
    cell.locator("select").first.select_option("tree")
    after = lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    cell.locator(".widget-play button").first.click()
    lab.wait_until_changed(lambda: picture.get_attribute("src"), after)
    lab.screenshot("08_tree")

    lab.cell("def tree_all_reduce").locator("img.widget-image").first.scroll_into_view_if_needed()
    lab.screenshot("08_measured")
    lab.assert_checked("collectives.cost", "15 / 15")

    mistake = "recursive_doubling_all_reduce = lambda x, comm: comm.send(x, comm.rank ^ 1) if comm.size > 1 else None"
    check = 'check("collectives.recursive_doubling_all_reduce")'
    wrong = lab.run_new_cell(f"{mistake}; {check}").locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "a deadlock" in wrong.text_content(), wrong.text_content()[-2000:]
    assert "rank 1 waits in send(dest=0)" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.page.wait_for_timeout(300)
    lab.screenshot("08_deadlock")
    lab.assert_solved()
