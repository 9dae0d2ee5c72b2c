"""Lab 07 in the browser: chunks go round, the training moves, the dashboard obeys and outlives a killed rank."""

import pytest

from tests.labs.learned import PROBES, assert_learned

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(290)]


def test_lab_07_runs_its_pictures_move_and_the_dashboard_obeys(open_lab):
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
    lab.screenshot("07_trained")

    for number, text in enumerate(
        (
            "ring_passing.explorable()",
            "ring_passing.explorable(ring_all_reduce)",
            "bucket_timeline.explorable()",
            "bucket_timeline.explorable(OverlappedDDP)",
        )
    ):
        explorable = lab.explorable(text)
        for slider in range(len(explorable.sliders)):
            explorable.press(slider)
        lab.page.wait_for_timeout(200)
        lab.screenshot(f"07_picture_{number}")
    milliseconds = lab.explorable("ring_passing.explorable()").milliseconds(keys=("ArrowRight", "ArrowLeft"))
    print(f"{milliseconds:.0f} ms from key to picture on the ring")
    lab.assert_checked("ddp.OverlappedDDP", "25 / 25")
    lab.cell("fastest_ms(1, 256)")
    lab.screenshot("07_scaling_table")
    lab.assert_solved()
    printed = lab.run_new_cell(PROBES["ddp"])
    assert_learned("ddp", printed.locator(".jp-OutputArea-output").text_content())

    # The notebook's engines were stopped by its last cell: the dashboard's own are started here.
    cell = lab.run_new_cell("board = training_dashboard.Dashboard(Cluster(n=4).start()); board")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)
    lab.screenshot("07_dashboard")

    def press(label):
        cell.get_by_role("button", name=label).click()

    def source():
        return picture.get_attribute("src")

    def says(words, seconds=30):
        lab._wait(lambda: words in (picture.get_attribute("title") or ""), seconds, f"the dashboard to say {words!r}")

    press("start")
    says("Epoch")
    for _ in range(5):
        lab.wait_until_changed(source, source())
    lab.screenshot("07_dashboard_training")
    press("pause")
    lab.page.wait_for_timeout(1500)
    held = source()
    lab.page.wait_for_timeout(1500)
    assert source() == held, "nothing moves while paused"
    press("continue")
    lab.wait_until_changed(source, held)
    press("stop")
    says("Stopped.")
    lab.screenshot("07_dashboard_stopped")
    press("start")
    says("Epoch")
    press("kill that rank")
    says("died")
    lab.screenshot("07_dashboard_killed")
    press("strong scaling")
    says("4 ranks, 64 images a step", 60)
    lab.screenshot("07_dashboard_scaling")
