"""`consistency` in a page: its pictures move, three rules run on engines, a barrier for SSP is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_its_pictures_move_and_a_barrier_is_explained(open_lab):
    lab = open_lab("consistency")
    lab.run_all(seconds=200)

    for name in ("who_waits", "how_late", "gossip_picture"):
        cell = lab.cell(f"{name}.explorable(")
        picture = cell.locator("img.widget-image").first
        picture.wait_for(timeout=20_000)
        for slider in cell.get_by_role("slider").all()[:2]:
            before = picture.get_attribute("src")
            slider.focus()
            slider.press("ArrowRight")
            lab.wait_until_changed(lambda picture=picture: picture.get_attribute("src"), before)
        lab.screenshot(f"consistency_{name}")

    lab.cell("axes.hist").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("consistency_three_rules")
    verdict = lab.cell('check("consistency.server")').locator(".jp-OutputArea-output").first
    assert "35 / 35" in verdict.text_content()

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
    wrong = lab.run_new_cell(f'{mistake}\ncheck("consistency.server")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "That is a barrier" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("consistency_barrier")
    lab.assert_solved()
