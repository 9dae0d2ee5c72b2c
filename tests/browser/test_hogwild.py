"""`hogwild` in a page: threads write on two engines, and a push of the last gradient alone is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_and_a_lost_sum_is_explained(open_lab):
    lab = open_lab("hogwild")
    lab.run_all(seconds=200)
    verdict = lab.cell('check("hogwild.downpour")').locator(".jp-OutputArea-output").first
    assert "25 / 25" in verdict.text_content()
    mistake = (
        "def replica(comm, servers, grad, w, n_fetch, n_push, steps):\n"
        "    w, k = w.clone(), 0\n"
        "    for op in plan(n_fetch, n_push, steps):\n"
        "        if op == 'compute':\n"
        "            total = grad(w, k)\n"
        "            k += 1\n"
        "            continue\n"
        "        for server, part in enumerate((w if op == 'fetch' else total).tensor_split(servers)):\n"
        "            comm.send(w.new_empty(0) if op == 'fetch' else part, server)\n"
        "            if op == 'fetch':\n"
        "                comm.recv(part, server)\n"
        "    return w\n"
    )
    wrong = lab.run_new_cell(f'{mistake}\ncheck("hogwild.downpour")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "not the last one alone" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("hogwild_last_gradient")
    lab.assert_solved()
