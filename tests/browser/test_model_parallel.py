"""`model_parallel` in a page: schedules and matrices move, stages run on engines, a wrong warm-up is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_and_a_stuck_schedule_is_explained(open_lab):
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
        picture = lab.explorable(text)
        for slider in range(len(picture.sliders[:2])):
            picture.press(slider, "ArrowRight")
        picture.choose(2)
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
    lab.assert_checked("model_parallel.run_stage", "25 / 25")

    mistake = "one_f_one_b = lambda p, m: [[(op, k, 0) for op in 'BF' for k in range(m)]] * p"
    lab.assert_explained(
        f'{mistake}; check("model_parallel.schedules")', "no stage can continue", "model_parallel_nobody_can_go_on"
    )
    lab.assert_solved()
