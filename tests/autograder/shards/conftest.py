"""A class of the tiny lab, graded whole and in parts."""

import contextlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder.cli import app


@pytest.fixture(autouse=True)
def one_zygote(monkeypatch, zygote):
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)


@pytest.fixture
def class_of_eight(tmp_path, write_notebook, solution) -> Path:
    """Right, wrong, blank, broken and missing notebooks, two of one student, and a name that is no plain text."""
    for name in ("ada", "ben", "h\u00e9di"):
        write_notebook(f"{name}.ipynb", *solution.values())
    write_notebook("cleo/old.ipynb", "x = 1", *solution.values())
    write_notebook("cleo/new.ipynb", solution["mean"])
    write_notebook("dan.ipynb", "def mean(x):\n    return x.sum()\n", solution["count"])
    write_notebook("eve.ipynb", "x = 1", hpcdl={"lab": "tiny"})
    (tmp_path / "submissions" / "finn.ipynb").write_text("no notebook")
    (tmp_path / "submissions" / "gus").mkdir()
    (tmp_path / "secret").write_text("of the course")
    return tmp_path / "submissions"


@pytest.fixture
def run(tmp_path):
    """`run("merge", out)`: a command about the class, with its secret; the exit code and what was said."""

    def command(name: str, out: Path, *more: str):
        weak = ["--allow-weak", "--no-mpi"] if name == "grade" else []  # tested on every system
        words = [name, tmp_path / "submissions", "--out", out, "--secret-file", tmp_path / "secret", *weak, *more]
        done = CliRunner().invoke(app, [str(word) for word in words])
        return done.exit_code, done.output

    return command


@pytest.fixture
def shards(run):
    """Grade the class in `n` parts into `out`, and merge them."""

    def grade(out: Path, n: int) -> None:
        for index in range(1, n + 1):
            code, said = run("grade", out, "--shard", f"{index}/{n}")
            assert code == 0, said
        code, said = run("merge", out)
        assert code == 0, said

    return grade


def contents(out: Path) -> dict[str, bytes]:
    """The files of a folder of results, except the graders' own."""
    paths = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
    own = [path for path in paths if path.parts[0] != "records" and not path.parts[0].startswith(".")]
    return {str(path): (out / path).read_bytes() for path in own}


@pytest.fixture(name="contents")
def contents_fixture():
    return contents
