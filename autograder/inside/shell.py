"""A substitute for IPython in grading: `display` shows nothing, `get_ipython()` returns a quiet stand-in."""

import builtins
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .magics import plain_python

NO_OUTPUTS = "`Out` and `_` have what a cell has shown, and grading shows nothing: give the value a name of its own."
NO_PROGRAMS = (
    "`!{}` runs a program of the machine, and grading runs none: write the value itself, or compute it in Python."
)


class NoProgramsError(RuntimeError):
    """A cell asks for the output of a shell line."""


class NoOutputsError(LookupError):
    """A cell asks for another cell's output."""


class Outputs(dict):
    """IPython's `Out`, always empty."""

    def refuse(self, *args: Any) -> Any:
        raise NoOutputsError(NO_OUTPUTS)

    __getitem__ = __iter__ = get = pop = keys = values = items = refuse


class Shell:
    """IPython's shell as far as a cell of an answer can notice; unknown methods do nothing."""

    def __init__(self, namespace: dict):
        self.user_ns = namespace

    def setenv(self, name: str, value: str) -> None:
        """Do what `%env NAME=value` does."""
        os.environ[name] = value

    def writefile(self, path: str, text: str, append: bool = False) -> None:
        """Do what `%%writefile PATH` does."""
        with open(Path(path).expanduser(), "a" if append else "w", encoding="utf-8") as file:
            file.write(text)

    def run_cell(self, source: str, *args: Any, **options: Any) -> None:
        """Run `source` as a cell."""
        exec(plain_python(source), self.user_ns)

    ex = run_cell

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Run `cell` as the body of `%%name line`."""
        self.run_cell(f"%%{name} {line}\n{cell}")

    def run_line_magic(self, name: str, line: str, *args: Any) -> None:
        """Do what `%run FILE` and `%time STATEMENT` do to the notebook's names; ignore other magics."""
        if name == "run":
            path = next(word for word in line.split() if not word.startswith("-"))
            self.run_cell(Path(path).expanduser().read_text(encoding="utf-8"))
        elif name == "time":
            self.run_cell(line)

    def push(self, variables: dict, *args: Any, **options: Any) -> None:
        """Add these names to the notebook."""
        self.user_ns.update(variables)

    def captured(self) -> SimpleNamespace:
        """Return an empty capture for `%%capture NAME`."""
        return SimpleNamespace(stdout="", stderr="", outputs=[], show=_nothing)

    def getoutput(self, command: str, *args: Any, **options: Any) -> None:
        """Refuse `names = !command`."""
        raise NoProgramsError(NO_PROGRAMS.format(command))

    system = getoutput

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def install(namespace: dict) -> None:
    """Give cells in `namespace` IPython's names, and let them import files that they write."""
    shell = Shell(namespace)
    builtins.get_ipython = lambda: shell  # type: ignore[attr-defined]
    builtins.display = _nothing  # type: ignore[attr-defined]
    namespace.update(In=[""], Out=Outputs())
    if "" not in sys.path:
        sys.path.append("")


def without_cache(code: str) -> None:
    """Let Numba compile `code` despite `cache=True`: Numba finds no file for a cell, and would fail."""
    if "cache=" in code and "numba" in sys.modules:
        import numba.core.dispatcher

        setattr(numba.core.dispatcher.Dispatcher, "enable_caching", _nothing)  # noqa: B010


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing, with any arguments."""
