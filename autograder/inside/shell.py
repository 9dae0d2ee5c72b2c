"""What a cell finds of IPython where it is graded: `display` shows nothing, `get_ipython()` is a quiet stand-in."""

import builtins
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NO_PROGRAMS = (
    "`!{}` runs a program of the machine, and grading runs none: write the value itself, or compute it in Python."
)


class NoProgramsError(RuntimeError):
    """A cell asks for the output of a shell line."""


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

    def captured(self) -> SimpleNamespace:
        """Return what `%%capture NAME` binds, with nothing in it."""
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
    """Give cells that run in `namespace` what IPython gives them, and let them import files that they write."""
    shell = Shell(namespace)
    builtins.get_ipython = lambda: shell  # type: ignore[attr-defined]
    builtins.display = _nothing  # type: ignore[attr-defined]
    namespace.update(In=[""], Out={})
    if "" not in sys.path:
        sys.path.append("")


def without_cache(code: str) -> None:
    """Let Numba compile `code` although `cache=True` stands in it: it finds no file of a cell, and gives up."""
    if "cache=" in code and "numba" in sys.modules:
        import numba.core.dispatcher

        setattr(numba.core.dispatcher.Dispatcher, "enable_caching", _nothing)  # noqa: B010


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing, whatever it is given."""
