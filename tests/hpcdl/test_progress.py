"""Where am I: points over all labs, in a terminal and in a notebook, over restarts of the kernel."""

import shutil

import nbformat
import pytest
from nbclient import NotebookClient
from typer.testing import CliRunner

from autograder import exercises
from hpcdl import labs, points
from hpcdl.cli import app
from hpcdl.points import Checked, PointsRecord
from hpcdl.progress import FULL_MARKS, ProgressError, progress, table
from hpcdl.reset import reset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two labs in a folder of a student's."""
    monkeypatch.delenv(points.VARIABLE)
    for name in ("02_gradient_descent.ipynb", "07_ddp.ipynb"):
        shutil.copy(labs.CLONE / name, tmp_path)
    return tmp_path


@pytest.fixture
def record(folder):
    return PointsRecord(folder / points.NAME)


@pytest.mark.parametrize("slug", exercises.LABS)
def test_full_marks_are_the_points_of_every_lab(slug):
    assert exercises.load(slug).points == FULL_MARKS


def test_nothing_is_checked_yet(folder):
    descent, ddp = progress(folder)
    assert (descent.name, descent.points, descent.checked) == ("02_gradient_descent", 0, None)
    assert descent.left == list(exercises.load("gradient_descent").exercises)
    assert ddp.left == list(exercises.load("ddp").exercises)


def test_points_of_the_last_checks_count(folder, record):
    for exercise, got, most in (("mse_grad", 10, 10), ("sgd", 15, 15), ("sgd", 5, 15)):
        record.add(Checked(f"gradient_descent.{exercise}", got, most, "2026-11-23T07:00:00+00:00"))
    descent, ddp = progress(folder)
    assert descent.points == 15
    assert "mse_grad" not in descent.left
    assert "sgd" in descent.left
    assert f"{descent.checked.astimezone():%Y}" == "2026"
    assert (ddp.points, ddp.checked) == (0, None)


def test_a_reset_exercise_is_left_again(folder, record):
    path = folder / "02_gradient_descent.ipynb"
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [c for c in notebook.cells if c.metadata.get("hpcdl", {}).get("exercise") == "gradient_descent.mse_grad"]
    cell.source = "def mse_grad(w, X, y):\n    return 0"
    nbformat.write(notebook, path)
    record.add(Checked("gradient_descent.mse_grad", 10, 10))
    reset("mse_grad", folder)
    descent, _ = progress(folder)
    assert (descent.points, "mse_grad" in descent.left) == (0, True)


def test_the_command_shows_each_lab_and_the_sum(folder, record, monkeypatch):
    record.add(Checked("gradient_descent.mse_grad", 10, 10))
    for exercise in exercises.load("ddp").exercises.values():
        record.add(Checked(exercise.id, exercise.points, exercise.points))
    monkeypatch.setenv("COLUMNS", "120")
    said = CliRunner().invoke(app, ["progress", "--folder", str(folder)])
    assert said.exit_code == 0
    lines = said.output.splitlines()
    (descent,) = [line for line in lines if "02 gradient_descent" in line]
    (ddp,) = [line for line in lines if "07 ddp" in line]
    assert " 10 " in descent
    assert "adam_step" in said.output
    assert "mse_grad" not in said.output
    assert {"100", "✓"} <= set(ddp.split())
    assert "110 of 200 points" in said.output


def test_no_labs_are_a_sentence(tmp_path):
    with pytest.raises(ProgressError, match=r"no labs in .*: say where they are"):
        progress(tmp_path)


def test_a_notebook_shows_the_table(folder, record):
    record.add(Checked("gradient_descent.mse_grad", 10, 10))
    shown = table(folder)._repr_mimebundle_((), ())
    assert "02 gradient_descent" in shown["text/html"]
    assert "10 of 200 points" in shown["text/plain"]


RIGHT = (
    "def mse_loss(w, X, y):\n    return ((X @ w - y) ** 2).mean()\n\n"
    "def mse_grad(w, X, y):\n    return 2 / len(y) * X.T @ (X @ w - y)"
)


def kernel(folder, *sources) -> list:
    """What the cells show in a fresh kernel that is started as the notebook's, in its folder."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return ["".join(out.get("text") or out.data["text/plain"] for out in cell.outputs) for cell in notebook.cells]


@pytest.mark.labs  # starts two kernels
def test_a_restart_loses_no_points_and_neither_does_another_lab(folder):
    first = "from autograder import check"
    *_, said = kernel(folder, first, RIGHT, 'check("gradient_descent.mse_grad")')
    assert "mse_grad: 10 / 10 points" in said
    assert "Lab total so far: 10 / 100" in said
    *_, other, worse, again, shown = kernel(
        folder,
        first,
        "def max_stable_lr(X):\n    raise NotImplementedError",
        'check("gradient_descent.max_stable_lr")',
        "def mse_loss(w, X, y):\n    return 0.0\n\ndef mse_grad(w, X, y):\n    return w\n"
        "check('gradient_descent.mse_grad')",
        'check("gradient_descent.max_stable_lr")',
        "from hpcdl.progress import table\ntable()",
    )
    assert "Lab total so far: 10 / 100" in other
    assert "An earlier version of yours had 10 points" in worse
    assert "Lab total so far: 0 / 100" in again
    assert "02 gradient_descent" in shown
