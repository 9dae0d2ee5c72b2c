"""A file system that changes under a batch costs the rows of the files that change, and no others."""

import contextlib
import csv
import os
import random
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from autograder.grading import batch, grade, grades, layouts, submitted
from autograder.outputs import late
from autograder.results import LabResult

INNOCENT = [f"innocent{i}" for i in range(4)]
VICTIMS = [f"victim{i}" for i in range(6)]


class Hostile:
    """Changes the files of `places`, one each time that it is asked to strike."""

    def __init__(self, seed: int, places: list[Path], cache: Path):
        self.random, self.places, self.cache = random.Random(seed), places, cache

    def strike(self) -> None:
        place = self.random.choice(self.places)
        files = [path for path in (place, *place.rglob("*")) if path != place or not place.is_dir()]
        target = self.random.choice([place, *files])
        action = self.random.choice([self.remove, self.dangle, self.loop, self.swap, self.rename, self.lock, self.pipe])
        with contextlib.suppress(OSError):
            action(target)
        if self.random.random() < 0.2:
            self.remove(self.cache)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def dangle(self, path: Path) -> None:
        self.remove(path)
        path.symlink_to(path.parent / "nowhere")

    def loop(self, path: Path) -> None:
        self.remove(path)
        path.symlink_to(path)

    def pipe(self, path: Path) -> None:
        self.remove(path)
        os.mkfifo(path)

    def swap(self, path: Path) -> None:
        self.remove(path)
        path.write_text(f"other {self.random.random()}")
        os.utime(path, (self.random.randrange(1 << 31),) * 2)

    def rename(self, path: Path) -> None:
        path.rename(path.with_name(f"{path.name}.{self.random.random()}"))

    def lock(self, path: Path) -> None:
        path.chmod(0)


def before(monkeypatch, hostile: Hostile, module, name: str) -> None:
    """Let it strike before each call of a function."""
    original = getattr(module, name)

    def struck(*args, **options):
        hostile.strike()
        return original(*args, **options)

    monkeypatch.setattr(module, name, struck)


def echo(submission, zygote, secret, only=None, mpi=False) -> LabResult:
    """Grade nothing: the message is what the file held."""
    try:
        data, _ = submitted.held(submission)
    except submitted.UngradableError as error:
        return grade.ungradable(submission, only, str(error))
    return LabResult(submission.student, "tiny", 0.0, message=data.decode())


@pytest.fixture(autouse=True)
def no_worker(monkeypatch):
    """Only files are the subject here."""
    monkeypatch.setattr(batch, "Zygote", lambda **_: contextlib.nullcontext(None))
    monkeypatch.setattr(batch.canaries, "require", lambda zygote: None)
    monkeypatch.setattr(grade, "grade", echo)
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)


def hand_in(root: Path) -> list[Path]:
    """Folders, notebooks and a zip file; the places of the victims'."""
    for student in (*INNOCENT, *VICTIMS):
        number = int(student[-1])
        if number % 3 == 0:
            path = root / f"{student}.ipynb"
        else:
            path = root / student / "deep" / "lab.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of {student}")
        if number % 3 == 2:
            (path.parent / "helpers.py").write_text("x = 1")
            (path.parent / "older.ipynb").write_text("older")
            os.utime(path.parent / "older.ipynb", (1, 1))
    return [path for path in root.iterdir() if path.name.startswith("victim")]


def rows(out: Path) -> list[dict]:
    with open(out / "grades.csv", newline="") as file:
        return list(csv.DictReader(file))


STEPS = [(layouts, "_look"), (submitted, "read"), (grade, "grade"), (grades, "newest_of_each"), (grades, "write")]


@pytest.mark.parametrize("seed", range(25))
def test_nobody_else_loses_a_row(tmp_path, monkeypatch, seed):
    folder, out = tmp_path / "submissions", tmp_path / "results"
    hostile = Hostile(seed, hand_in(folder), out / ".cache")
    for module, name in STEPS:
        before(monkeypatch, hostile, module, name)
    for _ in range(2):  # the second time the first one's results are kept
        ended = CliRunner().invoke(app, ["grade", str(folder), "--out", str(out), "--allow-weak", "--no-mpi"])
        assert ended.exit_code == 0, ended.output
        found = {row["student"]: row for row in rows(out)}
        for student in INNOCENT:
            assert found[student]["status"] == "graded"
            assert found[student]["message"].startswith(f"of {student}")
        for student in set(found) - set(INNOCENT):
            assert found[student]["message"], "a sentence"


def test_struck_victims_keep_a_row(tmp_path, monkeypatch):
    """From the moment that the folder was read, everyone in it has a row."""
    folder, out = tmp_path / "submissions", tmp_path / "results"
    hand_in(folder)
    monkeypatch.setattr(submitted, "read", lambda path, *most: shutil.rmtree(folder, ignore_errors=True) or gone())
    ended = CliRunner().invoke(app, ["grade", str(folder), "--out", str(out), "--allow-weak", "--no-mpi"])
    assert ended.exit_code == 0, ended.output
    assert {row["student"] for row in rows(out)} == {*INNOCENT, *VICTIMS}


def gone():
    raise submitted.UngradableError("the file cannot be read: no such file or directory")


def test_each_notebook_is_opened_once(tmp_path, monkeypatch):
    folder, out = tmp_path / "submissions", tmp_path / "results"
    hand_in(folder)
    opened, original = [], os.open

    def spy(path, *args, **options):
        opened.extend([path] if str(path).startswith(str(folder)) else [])
        return original(path, *args, **options)

    monkeypatch.setattr(os, "open", spy)
    CliRunner().invoke(app, ["grade", str(folder), "--out", str(out), "--allow-weak", "--no-mpi"])
    notebooks = [path for path in opened if path.suffix == ".ipynb"]
    assert sorted(notebooks) == sorted(folder.rglob("*.ipynb"))


def test_late_days_ask_no_file_that_is_gone(tmp_path):
    folder = tmp_path / "submissions"
    hand_in(folder)
    (folder / "ghost.ipynb").symlink_to("nowhere")
    for path in folder.rglob("*.ipynb"):
        os.utime(path, (10**9, 10**9), follow_symlinks=False)
    todo = layouts.submissions(folder)
    shutil.rmtree(folder)
    assert set(late.times_of_files(todo).values()) == {datetime.fromtimestamp(10**9)}


def test_a_dangling_link_costs_its_own_row(tmp_path):
    folder, out = tmp_path / "submissions", tmp_path / "results"
    hand_in(folder)
    (folder / "ghost.ipynb").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    ended = CliRunner().invoke(app, ["grade", str(folder), "--out", str(out), "--allow-weak", "--no-mpi"])
    assert ended.exit_code == 0, ended.output
    found = {row["student"]: row for row in rows(out)}
    assert found["ghost"]["message"] == "the file cannot be read: it is a link; hand in the file itself"
    assert found["loop"]["message"].endswith("but a link; hand in the .ipynb file that JupyterLab saves")
    assert sum(row["status"] == "graded" for row in found.values()) == len(INNOCENT + VICTIMS)
