"""Containers, to run the labs and to develop: the pins and the Python of everyone, commands that exist."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpcdl.cli import app

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"
PYTHON = (BINDER / "runtime.txt").read_text().strip().replace("-", ":")  # python:3.11


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """Its instructions with their arguments."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def devcontainer() -> dict:
    return json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())


def of(dockerfile, word: str) -> list[str]:
    return [argument for instruction, argument in dockerfile if instruction == word]


def test_the_pins_are_binders_which_are_everyones(dockerfile):
    (install,) = [run for run in of(dockerfile, "RUN") if "pip install" in run]
    (requirements,) = re.findall(r"-r (\S+)", install)
    assert (ROOT / requirements).samefile(BINDER / "requirements.txt")
    assert "==" not in install, "a version has one home"
    assert of(dockerfile, "COPY")[0] == ". /course"
    assert of(dockerfile, "WORKDIR")[0] == "/course", "`.` in the requirements is the course"


def test_the_python_is_binders(dockerfile, devcontainer):
    assert {image.split()[0] for image in of(dockerfile, "FROM")} == {f"{PYTHON}-slim"}
    assert devcontainer["image"] == f"mcr.microsoft.com/devcontainers/{PYTHON}"


def test_what_is_left_out_holds_nothing_that_the_installation_needs():
    left_out = (ROOT / ".dockerignore").read_text().split()
    needed = (
        "pyproject.toml",
        "hatch_build.py",
        "constraints.txt",
        "binder",
        "hpcdl",
        "autograder",
        "labs",
        "README.md",
    )
    assert not set(needed) & set(left_out)
    assert {".git", ".venv"} <= set(left_out)


def test_the_image_keeps_the_package_alone(dockerfile):
    last = max(i for i, (instruction, _) in enumerate(dockerfile) if instruction == "FROM")
    assert of(dockerfile[last:], "COPY") == ["--from=build /opt/hpcdl /opt/hpcdl"], "no solutions"
    assert of(dockerfile[last:], "USER") == ["student"]


def test_the_container_starts_the_labs_for_a_browser_outside_of_it(dockerfile, monkeypatch, tmp_path):
    program, *arguments = json.loads(of(dockerfile, "CMD")[0])
    assert program == "hpcdl"
    commands = []
    monkeypatch.setattr(os, "execv", lambda _, command: commands.append(command))
    for variable in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        monkeypatch.setenv(variable, "")
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.output
    assert {"--ip=0.0.0.0", "--no-browser", f"--ServerApp.root_dir={tmp_path / 'labs'}"} <= set(commands[0])
    assert (tmp_path / "labs" / "01_calculus.ipynb").exists()
    (port,) = of(dockerfile, "EXPOSE")
    assert f"--port={port}" in commands[0]


def test_the_development_container_makes_what_make_lab_makes(devcontainer):
    program, target, *settings = shlex.split(devcontainer["postCreateCommand"])
    makefile = (ROOT / "Makefile").read_text()
    assert program == "make"
    assert re.search(rf"^lab: {re.escape(target)}$", makefile, re.MULTILINE)
    assert re.search(rf"^{re.escape(target)}: pyproject.toml constraints.txt$", makefile, re.MULTILINE)
    assert settings == ["TORCH=cpu"]
    assert re.search(r"^TORCH_cpu :=", makefile, re.MULTILINE)
    assert devcontainer["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"].endswith(
        ".venv/bin/python"
    )
