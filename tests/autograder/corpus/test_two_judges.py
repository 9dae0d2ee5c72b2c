"""Two judges, one notebook: what `check` says in a notebook is what grading says, whatever style the cells are in."""

import re
import warnings
from pathlib import Path

import nbformat
import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import run, selfcheck
from autograder.grading.grade import grade_notebook
from autograder.grading.seeds import seeds
from autograder.inside import notebook
from autograder.sessions.local import LocalSession
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


def in_a_kernel(cells: list[str], folder: Path, monkeypatch) -> run.ExerciseResult:
    """Return what `check` finds after IPython has run the cells."""
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    shell = InteractiveShell()
    shell.enable_gui = lambda *names: None  # a kernel has one, a shell without a page has none
    for cell in cells:
        done = shell.run_cell(cell.rstrip())
        assert done.success, (cell, done.error_in_exec or done.error_before_exec)
    return run.run_exercise(EXERCISE, LocalSession(shell.user_ns), seeds(b"", ""), hidden=False)


@pytest.mark.thinned(12)
@pytest.mark.parametrize(("name", "said", "text"), CASES, ids=[name for name, *_ in CASES])
def test_both_judges_agree(name, said, text, zygote, tmp_path, monkeypatch):
    cells = cells_of(text)
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.rstrip()) for cell in cells])
    content = notebook.parse(nbformat.writes(document).encode())
    result = grade_notebook(content, LAB, zygote, "ada", selfcheck.SECRET)
    graded = next(each for each in result.exercises if each.name == EXERCISE.name)
    if said:
        assert said in " ".join(check.message for check in graded.checks), graded
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = in_a_kernel(cells, tmp_path, monkeypatch)
    assert shown.points == EXERCISE.points, [check.message for check in shown.checks]
    assert graded.points == EXERCISE.points, [result.notes, *[check.message for check in graded.checks]]
