"""`hpcdl reset`: an exercise's cell is blank again, and nothing that a student wrote is lost."""

import json
import shutil

import nbformat
import pytest
from typer.testing import CliRunner

from autograder import exercises
from hpcdl import labs
from hpcdl import reset as resetting
from hpcdl.cli import app


@pytest.fixture
def folder(tmp_path):
    """Two labs as a student gets them."""
    for path in labs.notebooks(labs.CLONE)[1:3]:
        shutil.copy(path, tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["reset", *map(str, arguments)])


def cell_of(path, exercise):
    cells = nbformat.read(path, as_version=4).cells
    return next(cell for cell in cells if cell.metadata.get("hpcdl", {}).get("exercise") == exercise)


def answer(path, exercise, code):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("hpcdl", {}).get("exercise") == exercise:
            cell.source, cell.execution_count = code, 7
            cell.outputs = [nbformat.v4.new_output("stream", text="mine")]
    nbformat.write(notebook, path)


def test_the_cell_is_what_it_was_and_what_stood_there_is_kept(folder):
    (path,) = folder.glob("02_*.ipynb")
    before = json.loads(path.read_text(encoding="utf-8"))
    for number, code in enumerate(("def mse_grad(w, X, y):\n    return 1", "def mse_grad(:"), start=1):
        answer(path, "gradient_descent.mse_grad", code)
        ended = run("mse_grad", "--folder", folder)
        assert ended.exit_code == 0, ended.output
        assert "Reload Notebook from Disk" in ended.output
        kept = folder / f"02_gradient_descent.mse_grad.{number}.py"
        assert kept.read_text(encoding="utf-8") == code + "\n"
        assert json.loads(path.read_text(encoding="utf-8")) == before
    assert "raise NotImplementedError" in cell_of(path, "gradient_descent.mse_grad").source


def test_no_exercise_has_the_name_of_something_else_to_reset(folder):
    names = {name for slug in exercises.LABS for name in exercises.load(slug).exercises}
    assert not {resetting.GUESSES, resetting.SPEEDS} & names
    (path,) = folder.glob("02_*.ipynb")
    answer(path, "gradient_descent.rates", "mine")
    run("rates", "--folder", folder)
    assert "raise NotImplementedError" in cell_of(path, "gradient_descent.rates").source


def test_the_other_exercises_keep_their_answers(folder):
    (path,) = folder.glob("02_*.ipynb")
    answer(path, "gradient_descent.sgd", "mine")
    answer(path, "gradient_descent.mse_grad", "mine too")
    run("gradient_descent.mse_grad", "--folder", folder)
    assert cell_of(path, "gradient_descent.sgd").source == "mine"


def test_a_blank_cell_stays_and_nothing_is_written(folder):
    ended = run("sgd", "--folder", folder)
    assert (ended.exit_code, ended.output) == (0, "The cell of sgd is blank already.\n")
    assert not list(folder.glob("*.py"))


def test_an_exercise_that_is_not_there_is_a_sentence(folder):
    ended = run("mse_gard", "--folder", folder)
    assert ended.exit_code == 2
    assert "here is no exercise 'mse_gard'" in ended.output
    assert "mse_grad" in ended.output


def test_an_exercise_that_is_there_twice_is_asked_for_by_its_lab(folder):
    (path,) = folder.glob("02_*.ipynb")
    shutil.copy(path, folder / "03_copy.ipynb")
    assert "is there more than once" in run("mse_grad", "--folder", folder).output


def test_a_notebook_that_does_not_know_its_blank_cell_is_left_alone(folder):
    (path,) = folder.glob("02_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.get("metadata", {}).get("hpcdl", {}).pop("blank", None)
    nbformat.write(notebook, path)
    content = path.read_bytes()
    ended = run("mse_grad", "--folder", folder)
    assert ended.exit_code == 2
    assert "take one from a new copy" in ended.output
    assert path.read_bytes() == content
