"""Two judges, one notebook: what `check` says in a notebook is what grading says, whatever style the cells are in."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import selfcheck
from autograder.grading.grade import grade_notebook
from autograder.inside import notebook
from autograder.walls.zygote import Zygote

TEXT = (Path(__file__).parent / "cells.txt").read_text(encoding="utf-8")
CASES = re.findall(r"^=== (\w+)(?: ! ([^\n]*))?\n(.*?)(?=^=== |\Z)", TEXT, re.MULTILINE | re.DOTALL)
LAB = exercises.load("gradient_descent")
EXERCISE = LAB.exercises["gradient_descent"]


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as zygote:
        yield zygote


def cells_of(text: str) -> list[str]:
    """Return the lab's first cell, and those of the case."""
    return [build.code("gradient_descent")[0], *re.split(r"^# %%\n", text, flags=re.MULTILINE)[1:]]


@pytest.fixture(scope="module")
def kernels():
    """`kernels(cells, folder)`: the points and messages that `check` finds after IPython has run the cells."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("kernels.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def ask(cells: list[str], folder: Path) -> list:
            print(json.dumps([cells, str(folder)]), file=server.stdin, flush=True)
            return json.loads(server.stdout.readline())

        yield ask
        server.stdin.close()


@pytest.mark.thinned(12, 3)
@pytest.mark.parametrize(("name", "said", "text"), CASES, ids=[name for name, *_ in CASES])
def test_both_judges_agree(name, said, text, zygote, kernels, tmp_path):
    cells = cells_of(text)
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.rstrip()) for cell in cells])
    content = notebook.parse(nbformat.writes(document).encode())
    result = grade_notebook(content, LAB, zygote, "ada", selfcheck.SECRET)
    graded = next(each for each in result.exercises if each.name == EXERCISE.name)
    if said:
        assert said in " ".join(check.message for check in graded.checks), graded
        return
    points, messages = kernels(cells, tmp_path)
    assert points == EXERCISE.points, messages
    assert graded.points == EXERCISE.points, [result.notes, *[check.message for check in graded.checks]]
