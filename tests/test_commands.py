"""Every command of `autograder` and `hpcdl` answers a mistake with a sentence and an exit code, never a traceback.

The commands are found by asking the programs, so that a new one is tried as well.
"""

import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from autograder import cli as grader
from autograder import doctor  # it starts a zygote, as `batch` does: imported before a test replaces that
from autograder.grading import batch
from autograder.walls import zygote
from hpcdl import __version__ as version
from hpcdl import cli as hpcdl
from hpcdl import commands

PROGRAMS = {"autograder": grader.app, "hpcdl": hpcdl.app}
LONG = "x" * 5000


def leaves(name: str, command, path: tuple = ()):
    """Each command with its path below the program."""
    inner = getattr(command, "commands", None)
    if inner is None or command.invoke_without_command:  # a group that does something by itself
        yield name, path, command
    for word, each in (inner or {}).items():
        yield from leaves(name, each, (*path, word))


EVERY = [leaf for name, app in PROGRAMS.items() for leaf in leaves(name, typer.main.get_command(app))]
IDS = ["-".join((name, *path)) for name, path, _ in EVERY]


@pytest.fixture
def places(tmp_path):
    """Files and folders given by mistake."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "bytes.ipynb").write_bytes(bytes(range(256)))
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "not.zip").write_text("no zip file")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "results" / "ada").mkdir(parents=True)
    (tmp_path / "results" / "ada" / "x.json").write_text('{"schema": "hpcdl.result/1"}')
    return tmp_path


def odd_values(places: Path) -> list[str]:
    names = ("folder", "empty", "bytes.ipynb", "list.json", "not.zip", "loop", "results", "absent/deep", "empty/below")
    return [*(str(places / name) for name in names), "", "-1", "1e9", "\u0663", "a\nb\x1b[2J", "\udcff", LONG]


def call(program: str, arguments: list[str]):
    return CliRunner().invoke(PROGRAMS[program], arguments)


def refused(ended) -> None:
    """It ended by itself, with a code of its own, and what it says is no traceback."""
    assert ended.exception is None or isinstance(ended.exception, SystemExit), repr(ended.exception)
    assert ended.exit_code in (0, 1, 2), ended.output[-800:]
    assert "Traceback" not in ended.output
    assert ended.exit_code == 0 or ended.output.strip(), "it says nothing"
    assert "\x1b[2J" not in ended.output, "a name may not steer the terminal"


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch, places):
    """No program, no cluster, no zygote: what would start one has taken its arguments."""
    monkeypatch.chdir(places)
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)  # else lanes are processes of their own
    for target in ("os.execv", "subprocess.call", "hpcdl.cluster.trial.try_cluster", "hpcdl.training.program.ranks"):
        monkeypatch.setattr(target, lambda *args, **options: (_ for _ in ()).throw(typer.Exit(0)))
    for module in (zygote, batch, doctor):
        monkeypatch.setattr(module, "Zygote", lambda *args, **_: (_ for _ in ()).throw(typer.Exit(0)))


@pytest.mark.thinned(3, 2)
@pytest.mark.parametrize(("program", "path", "command"), EVERY, ids=IDS)
def test_a_command_answers_odd_arguments_with_a_sentence(program, path, command, places):
    refused(call(program, [*path, "--no-such-option"]) if path[0] != "bench" else call(program, ["bench", "-9"]))
    needed = [each for each in command.params if each.required]
    if needed:
        assert call(program, [*path]).exit_code == 2
    for value in odd_values(places):
        given = [flag for each in needed for flag in filled(each, value)]
        if needed:
            refused(call(program, [*path, *given]))
        for each in command.params:
            if not each.required and each.name not in ("help", "engines") and not getattr(each, "is_flag", False):
                refused(call(program, [*path, *given, *filled(each, value)]))


def filled(parameter, value: str) -> list[str]:
    return [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]


def test_the_walk_knows_every_command():
    known = {"-".join((name, *path)) for name, path, _ in EVERY}
    assert {"autograder-grade", "autograder-export-canvas", "hpcdl-lab", "hpcdl-submit", "hpcdl-bench"} <= known
    assert len(known) > 20


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        ("hpcdl", ["cluster", "-n", "3"], "Starting 3 engines"),
        ("autograder", ["check", "{}"], "Checking {}"),
        ("autograder", ["grade-one", "{}", "--out", "a.json"], "Grading {}"),
        ("autograder", ["replay", "{}", "{}", "sgd"], "Checking sgd of {}"),
        ("autograder", ["doctor"], "Trying each attack on the walls"),
        ("hpcdl", ["slides", "02"], "Drawing the pictures of 02_gradient_descent"),
    ],
)
def test_a_command_that_takes_long_says_what_it_does(program, arguments, said, monkeypatch, places):
    """In a terminal; what takes long ends at once here."""
    notebook = places / "n[b].ipynb"
    notebook.write_text("{}")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "300")
    for slow in ("autograder.grading.batch.grade_all", "autograder.doctor.attack", "hpcdl.slides.deck.slides"):
        monkeypatch.setattr(slow, lambda *args, **options: (_ for _ in ()).throw(typer.Exit(0)))
    ended = call(program, [argument.format(notebook) for argument in arguments])
    assert said.format(notebook) in ended.output


# Errors that a command cannot foresee


def failing(error: BaseException):
    """A program of one command, which raises `error`."""
    app = typer.Typer(cls=commands.Commands, pretty_exceptions_enable=False)

    @app.callback()
    def main():
        pass

    @app.command()
    def fail():
        raise error

    return CliRunner().invoke(app, ["fail"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "Interrupted."),
        (OSError(28, "No space left on device", "/full/x"), 2, "/full/x: no space left on device; make room there"),
        (PermissionError(13, "Permission denied", b"/x\xff\x1b"), 2, r"/x\udcff\x1b: permission denied; choose"),
        (OSError(30, "Read-only file system", "/ro/x"), 2, "/ro/x: read-only file system; choose a place"),
        (ModuleNotFoundError("No module", name="jupytext.formats"), 2, "needs the package jupytext"),
        (ModuleNotFoundError("No module", name="autograder.bank"), 2, "run this in a clone"),
        (FileNotFoundError("no lab here: look there"), 2, "No lab here: look there."),
        (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
        (MemoryError(), 70, "MemoryError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_is_one_sentence(error, code, said):
    ended = failing(error)
    assert ended.exit_code == code
    assert said in ended.output
    assert "Traceback" not in ended.output
    assert len(ended.output.strip().splitlines()) == 1


def test_who_looks_for_the_mistake_gets_the_traceback(monkeypatch):
    monkeypatch.setenv("HPCDL_TRACEBACK", "1")
    assert isinstance(failing(ZeroDivisionError("x")).exception, ZeroDivisionError)


# The real programs: a place that is full, and Ctrl-C


def program(*arguments, **options):
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


@pytest.mark.parametrize(
    "arguments",
    [
        ["autograder", "release", "--lab", "02", "--out", "out", "--requirement", "x"],
        ["autograder", "export", "gradescope", "calculus", "--out", "b.zip", "--requirement", "x"],
        ["autograder", "export", "assignment", "calculus", "course"],
        ["hpcdl", "lab", "--folder", "mine"],
    ],
    ids=lambda arguments: "-".join(arguments[:3]),
)
@pytest.mark.labs
def test_a_full_disk_is_a_sentence(arguments, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    running = program("-m", *arguments, cwd=folder, preexec_fn=small_files)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 2, said
    assert "file too large; make room there" in said
    assert "Traceback" not in said
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert not left, "half a file"


@pytest.mark.parametrize("seconds", [pytest.param(1.5, marks=pytest.mark.long), 6.0])
@pytest.mark.labs
def test_ctrl_c_ends_grading_with_a_sentence(tmp_path, seconds):
    folder = tmp_path / "submissions"
    folder.mkdir()
    cell = '{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": null, "source": "%s"}'
    text = '{"nbformat": 4, "nbformat_minor": 5, "metadata": {"hpcdl": {"lab": "calculus"}}, "cells": [%s]}'
    for number in range(40):
        source = f"n = {number}; import time; time.sleep(9)\\ndef f(): return n"
        (folder / f"{number}.ipynb").write_text(text % (cell % source))
    arguments = ["-m", "autograder", "grade", str(folder), "--out", str(tmp_path / "out"), "--lanes", "2"]
    running = program(*arguments, start_new_session=True)
    wait_for(lambda: (tmp_path / "out" / ".lock").exists(), running)
    time.sleep(seconds)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of them
    said, _ = running.communicate(timeout=100)
    assert "Traceback" not in said, said
    assert running.returncode == 130
    assert "Interrupted." in said


def wait_for(holds, running) -> None:
    for _ in itertools.takewhile(lambda _: running.poll() is None, range(1000)):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(running.communicate()[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_version_is_shown(name):
    shown = CliRunner().invoke(PROGRAMS[name], ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"{name} {version}\n")


@pytest.mark.parametrize(("name", "path", "command"), EVERY, ids=IDS)
def test_help_shows_no_type_of_flags(name, path, command):
    shown = CliRunner().invoke(PROGRAMS[name], [*path, "--help"])
    assert shown.exit_code == 0
    assert "<bool>" not in shown.output
    assert "default: no-" not in shown.output


@pytest.mark.parametrize(
    ("name", "typed", "completed"), [("hpcdl", "sub", "submit"), ("autograder", "self", "selfcheck")]
)
def test_the_shell_completes_commands(name, typed, completed):
    asked = {f"_{name.upper()}_COMPLETE": "complete_bash", "COMP_WORDS": f"{name} {typed}", "COMP_CWORD": "1"}
    shown = CliRunner().invoke(PROGRAMS[name], env=asked, prog_name=name)
    assert shown.output.split() == [completed]
