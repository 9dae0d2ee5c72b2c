"""`model_parallel` in a page: schedules and matrices move, stages run on engines, a wrong warm-up is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_its_pictures_move_and_a_schedule_that_cannot_be_followed_is_explained(open_lab):
    lab = open_lab("model_parallel")
    lab.run_all(seconds=200)

    for number, text in enumerate(
        (
            "fill_the_bubble.explorable()",
            "cut_the_matrix.explorable()",
            'explorable({"gpipe": gpipe',
            'explorable({"one_f',
        )
    ):
        cell = lab.cell(text)
        picture = cell.locator("img.widget-image").first
        picture.wait_for(timeout=20_000)
        for slider in cell.get_by_role("slider").all()[:2]:
            before = picture.get_attribute("src")
            slider.focus()
            slider.press("ArrowRight")
            lab.wait_until_changed(lambda picture=picture: picture.get_attribute("src"), before)
        before = picture.get_attribute("src")
        cell.locator("select").first.select_option(index=2)
        lab.wait_until_changed(lambda picture=picture: picture.get_attribute("src"), before)
        lab.screenshot(f"model_parallel_picture_{number}")

    design = lab.explorable("your_design.explorable(design)")
    for slider in range(len(design.sliders)):
        design.press(slider)
    print(f"your_design: {design.milliseconds(keys=('ArrowRight', 'ArrowLeft')):.0f} ms, median of 4")
    lab.screenshot("model_parallel_design")
    lab.cell("MY_NAME =").scroll_into_view_if_needed()
    lab.screenshot("model_parallel_table")

    lab.cell("def measure_and_predict").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("model_parallel_measured")
    verdict = lab.cell('check("model_parallel.run_stage")').locator(".jp-OutputArea-output").first
    assert "25 / 25" in verdict.text_content()

    mistake = "one_f_one_b = lambda p, m: [[(op, k, 0) for op in 'BF' for k in range(m)]] * p"
    wrong = lab.run_new_cell(f'{mistake}; check("model_parallel.schedules")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "no stage can continue" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("model_parallel_nobody_can_go_on")
    lab.assert_solved()
