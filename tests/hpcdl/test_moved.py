"""Work that was done before a lab was cut in two is found: points, guesses, cells and files to hand in."""

import doctest
import json

import nbformat
import pytest
from typer.testing import CliRunner

from autograder import api, exercises
from hpcdl import guesses, labs, moved, points
from hpcdl.cli import app
from hpcdl.guesses import Guess, Ledger
from hpcdl.points import Checked, PointsRecord
from hpcdl.progress import progress

TABLE = {
    "ddp.mse_grad": ("gradient_descent.mse_grad",),
    "ddp.both": ("gradient_descent.sgd", "gradient_descent.minibatches"),
}


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """As if lab ddp had once had exercises that gradient_descent has now."""
    for old, new in TABLE.items():
        monkeypatch.setitem(moved.MOVED, old, new)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A student's folder: an old notebook of ddp, and today's of gradient_descent."""
    monkeypatch.setenv(points.VARIABLE, str(tmp_path / points.NAME))
    new = nbformat.read(labs.CLONE / "02_gradient_descent.ipynb", as_version=4)
    nbformat.write(new, tmp_path / "02_gradient_descent.ipynb")
    cells = [
        nbformat.v4.new_code_cell("mine", metadata={"hpcdl": {"exercise": name, "blank": "raise NotImplementedError"}})
        for name in ("ddp.lost", *TABLE)
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"hpcdl": {"lab": "ddp"}}), tmp_path / "06_ddp.ipynb")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(moved).failed == 0


def test_every_new_name_is_an_exercise_or_a_guess():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (labs.CLONE / "source").glob("*.py"))
    for old, new in moved.MOVED.items():
        known = [e.id for slug in exercises.LABS for e in exercises.load(slug).exercises.values()]
        assert old not in known
        assert all(name in known or f'"{name}"' in sources for name in new)


def test_points_of_an_old_name_count_for_the_new_one(folder):
    record = PointsRecord(folder / points.NAME)
    record.add(Checked("ddp.mse_grad", 10, 10))
    record.add(Checked("ddp.both", 15, 15))
    descent = next(row for row in progress(folder) if row.name == "02_gradient_descent")
    assert not {"mse_grad", "sgd", "minibatches"} & set(descent.left)
    record.add(Checked("gradient_descent.mse_grad", 4, 10))
    assert record.points("gradient_descent.mse_grad") == 4
    assert record.best("gradient_descent.mse_grad") == 10


def test_exercises_are_shown_where_they_are_now(folder):
    descent, ddp = progress(folder)
    assert (ddp.name, ddp.left) == ("06_ddp", ["lost"])
    assert descent.left == list(exercises.load("gradient_descent").exercises)


def test_a_renumbered_lab_has_one_row(folder):
    nbformat.write(nbformat.read(labs.CLONE / "07_ddp.ipynb", as_version=4), folder / "07_ddp.ipynb")
    assert [row.name for row in progress(folder)] == ["02_gradient_descent", "07_ddp"]
    assert progress(folder)[1].left == list(exercises.load("ddp").exercises)


@pytest.mark.parametrize("name", ["ddp.mse_grad", "mse_grad", "gradient_descent.mse_grad"])
def test_reset_finds_the_cell_by_its_old_name(name, folder):
    said = run("reset", name, "--folder", folder)
    assert "The cell of mse_grad is blank already" in said.output
    (folder / "02_gradient_descent.ipynb").unlink()
    said = run("reset", "ddp.mse_grad", "--folder", folder)
    assert "06_ddp.ipynb is blank again" in " ".join(said.output.split())


def test_reset_names_both_halves(folder):
    said = run("reset", "both", "--folder", folder)
    words = " ".join(said.output.split())
    assert all(name in words for name in TABLE["ddp.both"])


def test_submit_says_where_exercises_went(folder):
    said = run("submit", folder / "06_ddp.ipynb", "--no-run")
    words = " ".join(said.output.split())
    assert "The lab gradient_descent now has mse_grad, sgd, minibatches." in words
    assert "Hand them in with that lab's notebook." in words


def test_a_check_by_the_old_name_checks_the_new():
    assert [e.id for e in api.find("ddp.mse_grad")] == ["gradient_descent.mse_grad"]
    assert [e.name for e in api.find("ddp.both")] == ["sgd", "minibatches"]


def test_a_guess_of_an_old_name_is_todays(tmp_path):
    path = tmp_path / guesses.NAME
    path.write_text(json.dumps({"name": "ddp.mse_grad", "guess": 2.0}) + "\n")
    ledger = Ledger(path)
    ledger.add(Guess("gradient_descent.other", 3.0))
    assert list(ledger.guesses) == ["gradient_descent.mse_grad", "gradient_descent.other"]
