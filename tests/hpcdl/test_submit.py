"""`hpcdl submit`: one file that holds the notebook, its hash, and whether it runs and is complete."""

import hashlib
import json
import subprocess
import sys
import warnings
import zipfile

import nbformat
import pytest
from typer.testing import CliRunner

from hpcdl import designs, submit
from hpcdl.cli import app

WRITTEN = "def double(x):\n    return 2 * x"
STUB = "def double(x):\n    raise NotImplementedError"


@pytest.fixture
def lab(tmp_path):
    """Writes a lab of one exercise with this answer, and this cell below it; returns its path."""

    def write(answer: str, below: str = "double(2)"):
        exercise = nbformat.v4.new_code_cell(answer, metadata={"hpcdl": {"exercise": "tiny.double"}})
        notebook = nbformat.v4.new_notebook(cells=[exercise, nbformat.v4.new_code_cell(below)])
        notebook.metadata["hpcdl"] = {"lab": "tiny"}
        path = tmp_path / "99_tiny.ipynb"
        nbformat.write(notebook, path)
        return path

    return write


def run(*arguments):
    return CliRunner().invoke(app, ["submit", *map(str, arguments)])


def test_a_complete_lab_becomes_one_file_with_hash_and_environment(lab):
    path = lab(WRITTEN)
    ended = run(path)
    assert ended.exit_code == 0, ended.output
    with zipfile.ZipFile(path.with_suffix(".zip")) as archive:
        assert archive.read(path.name) == path.read_bytes(), "the notebook as the student saved it"
        about = json.loads(archive.read("submission.json"))
    assert about["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (about["lab"], about["open_exercises"], about["error"]) == ("tiny", [], "")
    assert {"hpcdl", "python", "torch"} <= set(about["environment"])


def test_nothing_but_its_own_words_is_printed(lab):
    """The kernel writes to the terminal by itself, so a program is asked and not a function."""
    command = [sys.executable, "-m", "hpcdl", "submit", str(lab(WRITTEN))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def test_an_open_exercise_is_named_and_nothing_is_written_unless_asked(lab):
    path = lab(STUB)
    ended = run(path)
    assert ended.exit_code == 1
    assert "Still open: double." in ended.output
    assert not path.with_suffix(".zip").exists()
    assert run(path, "--no-run", "--anyway").exit_code == 0
    assert path.with_suffix(".zip").exists()


def test_a_cell_that_fails_is_named_with_its_error(lab):
    ended = run(lab(WRITTEN, below="x = 1\ny = missing"))
    assert ended.exit_code == 1
    assert "code cell 2 (`x = 1`): NameError: name 'missing' is not defined" in ended.output


def test_a_kernel_that_dies_is_an_answer_too(lab):
    ended = run(lab(WRITTEN, below="import os; os._exit(1)"))
    assert ended.exit_code == 1
    assert "the kernel died" in ended.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "is no notebook"),
        (b"\xff\xfe", "is no notebook"),
        (nbformat.writes(nbformat.v4.new_notebook()).encode(), "is not a lab of this course"),
    ],
)
def test_what_is_no_lab_is_refused(tmp_path, content, said):
    path = tmp_path / "x.ipynb"
    path.write_bytes(content)
    ended = run(path)
    assert ended.exit_code == 2
    assert said in ended.output


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(submit.SubmissionError, match="cannot be read: No such file"):
        submit.read(tmp_path / "none.ipynb")


CHECKED = """
from autograder import check

def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).mean()

def mse_grad(w, X, y):
    return X.T @ (X @ w - y)
"""


def test_the_points_of_each_exercise_are_those_of_the_notebooks_checks(lab):
    below = 'check("gradient_descent.mse_grad")\ncheck("gradient_descent.max_stable_lr")\ncheck("calculus.derivative")'
    path = lab(CHECKED, below)
    ended = run(path)
    assert "mse_grad: 3 / 10 points" in ended.output
    assert "max_stable_lr: not done yet" in ended.output
    assert "3 points by the checks of the notebook" in ended.output
    assert "the points say which are right" in ended.output
    run(path, "--anyway")
    with zipfile.ZipFile(path.with_suffix(".zip")) as archive:
        about = json.loads(archive.read("submission.json"))
    assert about["points"] == {"mse_grad": 3.0, "max_stable_lr": 0.0, "derivative": 0.0}


def test_warnings_of_packages_end_nothing(tmp_path, monkeypatch):
    """Python 3.12 deprecates what nbclient calls; under `-W error` handing in works all the same."""
    import nbclient

    def execute(self, **options):
        warnings.warn("datetime.datetime.utcnow() is deprecated", DeprecationWarning, stacklevel=2)

    monkeypatch.setattr(nbclient.NotebookClient, "execute", execute)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert submit.executed(notebook, tmp_path, lambda done, of: None)[1] == ""


@pytest.mark.parametrize("handed_in", [False, True])
def test_an_own_schedule_comes_along_only_if_the_student_says_so(lab, handed_in):
    path = lab(WRITTEN)
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["hpcdl"]["lab"] = designs.LAB
    nbformat.write(notebook, path)
    (path.parent / designs.NAME).write_text("{}")
    ended = run(path, "--no-run", *["--design"] * handed_in)
    assert ended.exit_code == 0, ended.output
    with zipfile.ZipFile(path.with_suffix(".zip")) as archive:
        assert (designs.NAME in archive.namelist()) is handed_in
    assert ("add --design" in ended.output) is not handed_in
