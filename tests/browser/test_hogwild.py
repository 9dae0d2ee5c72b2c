"""`hogwild` in a page: threads write on two engines, and a push of the last gradient alone is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.mpi, pytest.mark.timeout(300)]


def test_lab_runs_and_a_lost_sum_is_explained(open_lab):
    lab = open_lab("hogwild")
    lab.run_all(seconds=200)
    lab.assert_checked("hogwild.downpour", "25 / 25")
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
    lab.assert_explained(f'{mistake}\ncheck("hogwild.downpour")', "not the last one alone", "hogwild_last_gradient")
    lab.assert_solved()
