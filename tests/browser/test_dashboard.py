"""Lab 07's dashboard as students use it: after Run All, while cells run, and when the cluster's cell is run again."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs("ddp"), pytest.mark.mpi, pytest.mark.timeout(290)]

IMPORTS = """import warnings
warnings.simplefilter("ignore")
import psutil, torch
from hpcdl.cluster import Cluster, ClusterError, current
from hpcdl.widgets.pictures import training_dashboard

def engines():  # each engine is started by a shell, which holds no Python
    return sum(is_engine(process) for process in psutil.Process().children(recursive=True))

def is_engine(process):
    try:
        words = process.cmdline()
    except psutil.Error:  # it has ended just now
        return False
    return "hpcdl.cluster.engine" in words and "python" in words[0]"""
START = "cluster = Cluster(n=2).start()"
BOARD = "board = training_dashboard.Dashboard(cluster)\nboard"
WAIT = """def both_wait(comm):
    comm.recv(torch.zeros(3), source=1 - comm.rank)

try:
    cluster.run(both_wait, timeout=2)
except ClusterError as error:
    print(error)"""
STOP = "cluster.stop()"


class Board:
    """The dashboard in the page."""

    def __init__(self, lab):
        self.lab, self.cell = lab, lab.cell("training_dashboard.Dashboard")
        self.picture = self.cell.locator("img.widget-image").first
        self.picture.wait_for(timeout=20_000)

    def press(self, label: str) -> None:
        self.cell.get_by_role("button", name=label).click()

    def says(self, words: str, seconds: float = 40) -> None:
        title = self.picture.get_attribute
        self.lab._wait(lambda: words in (title("title") or ""), seconds, f"the dashboard to say {words!r}")


def press_run(lab, text: str):
    """Begin to run a cell, and do not wait for it; the cell."""
    cell = lab.cell(text)
    cell.locator(".cm-content").click()
    lab.page.keyboard.press("Control+Enter")
    return cell


def test_the_dashboard_starts_waits_and_follows(open_cells):
    lab = open_cells("a_dashboard.ipynb", [IMPORTS, START, BOARD, WAIT, STOP])
    lab.run_all(seconds=90)
    board = Board(lab)

    # Run All has stopped the engines: start brings others.
    board.press("start")
    board.says("Epoch")
    assert "ENGINES 2" in lab.run_new_cell("print('ENGINES', engines())").text_content()

    # The cluster's cell once more while it trains: one set of engines, which is the dashboard's from the next start on.
    said = " ".join(lab.run_cell("cluster = Cluster").all_text_contents())  # a slow start adds how far it is
    assert "the 2 engines that were started before are stopped: a notebook has one set" in said
    board.says("the engines were stopped while they worked. Press start to begin again.")
    board.press("start")
    board.says("Epoch")
    assert "SAME True 2" in lab.run_new_cell("print('SAME', board.cluster is cluster, engines())").text_content()

    # The next cell while it trains waits and says so; the training's end is its begin, and nothing is wrecked. It is
    # the first time that stop is pressed: a control's first message is not for the kernel's thread that waits.
    cell = press_run(lab, "def both_wait")
    said = cell.locator(".jp-OutputArea-output")
    lab._wait(lambda: any("The engines are busy" in text for text in said.all_text_contents()), 10, "the sentence")
    lab.screenshot("a_dashboard_busy")
    board.press("stop")
    board.says("Stopped.")
    lab._wait(lambda: any("Deadlock" in text for text in said.all_text_contents()), 20, "the cell's own answer")
    assert (
        "AFTER 2 [0, 1]"
        in lab.run_new_cell("print('AFTER', engines(), cluster.run(lambda comm: comm.rank))").text_content()
    )

    # A cell that is interrupted while it waits leaves the training alone.
    board.press("start")
    board.says("Epoch")
    cell = press_run(lab, "def both_wait")
    lab._wait(lambda: any("The engines are busy" in text for text in said.all_text_contents()), 10, "the sentence")
    lab.page.get_by_role("menuitem", name="Kernel", exact=True).click()
    lab.page.get_by_text("Interrupt Kernel", exact=True).click()
    lab._wait(lambda: any("Nothing was run" in text for text in said.all_text_contents()), 10, "the sentence")
    source = board.picture.get_attribute("src")
    lab.wait_until_changed(lambda: board.picture.get_attribute("src"), source)

    # The engines are stopped while it trains: a sentence, and start continues.
    lab.run_cell("cluster.stop()")
    board.says("the engines were stopped while they worked. Press start to begin again.")
    board.press("start")
    board.says("Epoch")
    board.press("stop")
    board.says("Stopped.")
    lab.screenshot("a_dashboard")
