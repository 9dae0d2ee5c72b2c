"""Every command ends with one sentence, which shows names and paths as they are."""

import os
import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hpcdl import commands

sentences: list[str] = []
app = typer.Typer(cls=commands.Commands)


@app.command()
def fail(folder: str) -> None:
    """Refuse."""
    if sentences:
        commands.end(sentences.pop())
    Path(folder, "absent").read_text()


@app.command()
def wait(folder: str) -> None:
    """Be ended while at work."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        Path(folder, "cleaned").touch()


def said(folder: str, *sentence: str) -> str:
    """What is said on stderr: `sentence`, or that a file in `folder` is not there."""
    sentences[:] = sentence
    return CliRunner().invoke(app, ["fail", folder]).stderr


@pytest.mark.parametrize(
    "folder", ["ro/results", "results", "results/", "./results", "grades", "ärger", "out-2", "a b"]
)
def test_paths_are_shown_as_they_are(folder):
    shown = str(Path(folder))
    assert said(folder, f"{shown} is in use: give another").startswith(f"{shown} is in use")
    assert said(folder).startswith(f"{shown}/absent: no such file")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("there is no lab 'x'", "There is no lab 'x'."),
        ("say which", "Say which."),
        ("grades.csv has no row", "grades.csv has no row."),
        ("gradient_descent is no exercise", "gradient_descent is no exercise."),
        ("/tmp/x is a file", "/tmp/x is a file."),
        ("64 files", "64 files."),
    ],
)
def test_sentences_begin_with_a_capital(sentence, expected, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert said("x", sentence).strip() == expected


def test_a_file_that_is_here_is_a_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "class").mkdir()
    assert said("x", "class is empty").strip() == "class is empty."


def test_sigterm_ends_with_a_sentence(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    ended = CliRunner().invoke(app, ["wait", str(tmp_path)])
    assert ended.exit_code == 143
    assert ended.stderr.startswith("Ended by SIGTERM. What was done is kept")
    assert (tmp_path / "cleaned").exists()
    assert signal.getsignal(signal.SIGTERM) is before
