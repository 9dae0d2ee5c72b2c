"""What the file browser of `hpcdl lab` shows: the labs, and not their solutions."""

import os
import re

import pytest
from jupyter_server.services.contents.filemanager import FileContentsManager
from typer.testing import CliRunner

from hpcdl import labs
from hpcdl.cli import app


@pytest.fixture
def listing(monkeypatch):
    """The names that a server begun with `hpcdl lab ARGUMENTS` lists, by the options that it is given."""

    def of(folder, *arguments) -> list[str]:
        commands = []
        monkeypatch.setattr(os, "execv", lambda program, command: commands.append(command))
        monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")
        monkeypatch.setenv("JUPYTER_PATH", "")
        monkeypatch.chdir(folder)
        CliRunner().invoke(app, ["lab", "--no-browser", *arguments])
        (command,) = commands
        option = "--ContentsManager.hide_globs="
        globs = [word.removeprefix(option) for word in command if word.startswith(option)]
        manager = FileContentsManager(root_dir=str(folder), **({"hide_globs": globs} if globs else {}))
        return [entry["name"] for entry in manager.get("/")["content"]]

    return of


def test_in_a_clone_the_solutions_are_not_the_first_entry_nor_any(listing):
    names = listing(labs.CLONE)
    assert "source" not in names
    assert next(name for name in sorted(names) if re.match(r"\d\d_", name)) == "00_tensors.ipynb"
    assert "README.md" in names


def test_in_a_folder_of_ones_own_everything_is_listed(listing, tmp_path):
    (tmp_path / "source").mkdir()
    assert "source" in listing(tmp_path, "--folder", str(tmp_path))
