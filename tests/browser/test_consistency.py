"""`consistency` in a page: its pictures move, three rules run on engines, a barrier for SSP is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_its_pictures_move_and_a_barrier_is_explained(open_lab):
    lab = open_lab("consistency")
    lab.run_all(seconds=200)

    for name in ("who_waits", "how_late", "gossip_picture"):
        picture = lab.explorable(f"{name}.explorable(")
        for slider in range(len(picture.sliders[:2])):
            picture.press(slider, "ArrowRight")
        lab.screenshot(f"consistency_{name}")

    lab.cell("axes.hist").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("consistency_three_rules")
    lab.assert_checked("consistency.server", "35 / 35")

    mistake = (
        "def serve(comm, w, staleness, steps, lr):\n"
        "    w, g = w.clone(), torch.empty_like(w)\n"
        "    for _ in range(steps):\n"
        "        for worker in range(1, comm.size):\n"
        "            comm.recv(g, worker)\n"
        "            w -= lr * g\n"
        "        for worker in range(1, comm.size):\n"
        "            comm.send(w, worker)\n"
        "    return w\n"
    )
    lab.assert_explained(f'{mistake}\ncheck("consistency.server")', "That is a barrier", "consistency_barrier")
    lab.assert_solved()
