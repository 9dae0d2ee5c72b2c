"""The first week's walk: what students do, in any order, from a wheel, `make lab` and Binder's files."""

import os
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import served

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.mpi, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
ANSWER = "def mse_loss(w, X, y):\n    return ((X @ w - y) ** 2).mean()\n\ndef mse_grad(w, X, y):\n    {}"
GRADIENT = ANSWER.format("return 2 / len(y) * X.T @ (X @ w - y)")
CHECK = 'check("gradient_descent.mse_grad")'
OF_OURS = re.compile(r"File .*(autograder|hpcdl|site-packages)/")  # a line of a traceback


def run(*command, folder: Path | None = None) -> str:
    ended = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def copy_of_the_clone(place: Path) -> Path:
    """What git tracks, as it is now, with the environment of this clone."""
    for name in run("git", "ls-files", "-z", folder=ROOT).split("\0"):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def from_a_wheel(home: Path) -> tuple[list, Path, Path]:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", home, ROOT)
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv")
    python = home / "venv" / "bin" / "python"
    wheel = next(home.glob("*.whl"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    packages = next(home.glob("venv/lib/python*/site-packages"))
    (packages / "others.pth").write_text("\n".join(path for path in site.getsitepackages() if os.path.isdir(path)))
    # What packages put beside Python's: MPI, and the pages' half of widgets.
    for place in [
        *Path(sys.prefix, "lib").glob("[!p]*"),
        *Path(sys.prefix).glob("share"),
        *Path(sys.prefix).glob("etc"),
    ]:
        (home / "venv" / place.relative_to(sys.prefix)).symlink_to(place)
    (home / "course").mkdir()
    program = home / "venv" / "bin" / "hpcdl"
    return [program, "lab", "--no-browser"], home / "course", home / "course" / "labs"


def from_make(home: Path) -> tuple[list, Path, Path]:
    if subprocess.run(["make", "--question", ".venv/.installed"], cwd=ROOT, check=False).returncode:
        pytest.skip("this clone has no .venv, or one older than pyproject.toml: make test makes it")
    clone = copy_of_the_clone(home / "clone")
    (clone / ".venv").symlink_to(ROOT / ".venv")  # up to date, so that nothing is installed from here
    return ["make", "lab"], clone, clone / "labs"


def from_binder(home: Path) -> tuple[list, Path, Path]:
    clone = copy_of_the_clone(home / "clone")
    options = ["--no-browser", "--LabApp.default_url=/lab/tree/labs/map.ipynb", "--allow-root"]
    return [clone / "binder" / "start", "jupyter", "lab", *options], clone, clone


@pytest.fixture(scope="module", params=[from_a_wheel, from_make, from_binder], ids=["wheel", "make", "binder"])
def jupyter(request, tmp_path_factory):
    """Instead of the server of all other tests: (its address, the folder that it shows)."""
    home = tmp_path_factory.mktemp("walk")
    command, folder, shown = request.param(home)
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with served(command, home, folder, HPCDL_POINTS=str(home / "points.jsonl"), **here) as address:
        yield address, shown


@pytest.fixture
def walk(open_lab, jupyter):
    """Open a blank lab from the map, as a stranger does."""

    def open_(name: str) -> "Walk":
        folder = "" if (jupyter[1] / "README.md").read_text().startswith("# The labs") else "labs/"
        return Walk(open_lab(folder + name, stranger=True))

    return open_


class Walk:
    """A student's page; nothing that it shows may hold a traceback of ours."""

    def __init__(self, lab):
        self.lab, self.page = lab, lab.page

    def menu(self, name: str, entry: str, button: str = "") -> None:
        self.page.get_by_role("menuitem", name=name, exact=True).click()
        self.page.get_by_text(entry, exact=True).click()
        if button:
            self.page.locator(".jp-Dialog").get_by_role("button", name=button).click()

    def answers(self, code: str) -> None:
        """Rewrite the exercise's cell, and run it."""
        self.lab.cell("def mse_loss").locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(code)  # as one pastes
        self.lab.run_cell("def mse_loss")

    def says(self, words: str, cell: str = CHECK) -> None:
        outputs = self.lab.run_cell(cell, seconds=60)  # they come a moment after the cell's number
        self.lab._wait(lambda: words in " ".join(outputs.all_text_contents()), 10, f"{words!r}")
        self.is_clean()

    def tries(self, code: str, words: str) -> None:
        said = self.lab.run_new_cell(code).locator(".jp-OutputArea-output").all_text_contents()
        assert words in " ".join(said), said
        self.is_clean()

    def is_clean(self) -> None:
        for text in self.page.locator(".jp-OutputArea-output").all_text_contents():
            assert not OF_OURS.search(text), text

    def press_run(self, cell: str) -> None:
        self.lab.cell(cell).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")


def test_mistakes_of_the_first_evening(walk, jupyter):
    student = walk("02_gradient_descent.ipynb")
    student.says("is not there yet: run the lab's first cell")
    student.lab.run_cell("import math", seconds=90)
    student.says("not done yet")
    student.answers(GRADIENT)
    student.says("10 / 10")

    student.tries("check(mse_grad)", "stands in quotes")
    student.tries("check()", "Say which exercise")
    student.answers(GRADIENT.replace("len(y) *", "len(y) *)"))
    student.says("did not run: SyntaxError")
    student.answers(ANSWER.format("return input()"))
    student.says("asks for input()")
    student.answers(ANSWER.format("exit()"))
    student.says("ended the program")
    student.answers(ANSWER.format("while True: pass"))
    student.press_run(CHECK)
    student.page.wait_for_timeout(1000)
    student.menu("Kernel", "Interrupt Kernel")
    said = student.lab.cell(CHECK).locator(".jp-OutputArea-output")
    student.lab._wait(lambda: "You stopped the check" in " ".join(said.all_text_contents()), 20, "the sentence")
    student.is_clean()

    student.answers(GRADIENT)
    student.says("10 / 10")
    student.menu("Kernel", "Restart Kernel and Clear Outputs of All Cells…", "Confirm Kernel Restart")
    student.lab._wait(lambda: student.lab.kernel_state() == "idle", 30, "the kernel to restart")
    student.page.wait_for_timeout(500)
    student.says("is not there yet: run the lab's first cell")
    student.lab.run_cell("import math", seconds=90)
    student.tries('check("gradient_descent.sgd")', "not done yet")  # any order: before its cell
    student.lab.screenshot(f"walk_{jupyter[1].name}")


def test_run_all_and_then_the_dashboard(walk):
    student = walk("07_ddp.ipynb")
    student.lab.run_all(seconds=240)
    red = student.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']")
    assert not red.count(), red.first.text_content()
    student.is_clean()

    cell = student.lab.cell("training_dashboard.Dashboard(cluster)")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)

    def press(label: str) -> None:
        cell.get_by_role("button", name=label).click()

    def shows(words: str, seconds: float = 60) -> str:
        student.lab._wait(lambda: words in (picture.get_attribute("title") or ""), seconds, words)
        return picture.get_attribute("title")

    press("start")  # the notebook's last cell has stopped the engines: others are started
    shows("Epoch")
    press("stop")
    shows("Stopped.")
    student.lab.run_cell("cluster = Cluster(n=4)", seconds=60)
    press("start")
    shows("Epoch")
    student.press_run("def both_wait")
    said = student.lab.cell("def both_wait").locator(".jp-OutputArea-output")
    student.lab._wait(lambda: any("engines are busy" in text for text in said.all_text_contents()), 20, "the sentence")
    press("stop")
    shows("Stopped.")
    student.lab._wait(lambda: any("Deadlock" in text for text in said.all_text_contents()), 30, "the cell's answer")

    press("start")
    shows("Epoch")
    chosen = cell.get_by_role("slider").nth(-2)
    chosen.focus()
    for _ in range(2):
        chosen.press("ArrowRight")
    press("kill that rank")
    text = shows("died")
    assert "rank 2 died" in text.lower(), text
    assert not re.search(r"rank[s]? (0|1|3)\b[^.]*died", text.lower()), text
    student.is_clean()
    student.lab.screenshot("walk_dashboard")

    address = student.page.url
    student.page.goto("about:blank")  # the tab is closed, and opened again: the kernel and its engines have gone on
    student.page.goto(address, wait_until="domcontentloaded")
    student.page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    student.lab._wait(lambda: student.lab.kernel_state() == "idle", 60, "the kernel")
    student.tries("print('ranks', cluster.run(lambda comm: comm.size))", "ranks [")
