"""`machines` in a page: layers stand under their roofs, and a MAC counted once is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(300)]


def test_lab_runs_and_a_mac_counted_once_is_explained(open_lab):
    lab = open_lab("machines")
    lab.run_all(seconds=200)
    lab.cell("Four layers under three roofs").locator("img").first.scroll_into_view_if_needed()
    lab.screenshot("machines_roofs")
    lab.assert_checked("machines.roofline", "25 / 25")
    mistake = (
        "def place(layers, batch, peak, bandwidth, itemsize):\n"
        "    rows = []\n"
        "    for weights, macs, moved in layers:\n"
        "        flops, nbytes = batch * macs, itemsize * (batch * moved + weights)\n"
        "        seconds, limit = roof(flops, nbytes, peak, bandwidth)\n"
        "        rows.append((flops / nbytes, flops / seconds, limit))\n"
        "    return rows\n"
    )
    lab.assert_explained(f'{mistake}\ncheck("machines.roofline")', "A MAC is two operations", "machines_one_operation")
    lab.assert_solved()
