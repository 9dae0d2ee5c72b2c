"""A substitute for IPython in grading: `display` shows nothing, `get_ipython()` returns a quiet stand-in."""

import builtins
import contextlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .magics import plain_python, split

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
        os.environ[name] = self.expanded(value)

    def writefile(self, path: str, text: str, append: bool = False) -> None:
        """Do what `%%writefile PATH` does."""
        with open(Path(self.expanded(path)).expanduser(), "a" if append else "w", encoding="utf-8") as file:
            file.write(text)

    def chdir(self, line: str) -> None:
        """Do what `%cd FOLDER` does, if the folder exists below the notebook's."""
        words = [word for word in split(self.expanded(line)) if word != "-q"]
        home, folder = Path.home().resolve(), Path(words[0] if words else "~").expanduser().resolve()
        if folder.is_relative_to(home) and folder.is_dir():
            os.chdir(folder)

    def mkdir(self, line: str) -> None:
        """Do what `!mkdir -p FOLDER` does."""
        for word in split(self.expanded(line)):
            with contextlib.suppress(OSError):
                if not word.startswith("-"):
                    Path(word).expanduser().mkdir(parents=True, exist_ok=True)

    def expanded(self, line: str) -> str:
        """Return a magic's line with the values of `$name` and `{expression}`, as far as they have any."""
        if "$" not in line and "{" not in line:
            return line
        from IPython.utils.text import DollarFormatter  # on first use: hardly any notebook needs it

        try:
            return DollarFormatter().vformat(line, args=[], kwargs=self.user_ns)
        except Exception:  # whatever an expression raises
            return line

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
            self.run_file(split(self.expanded(line)))
        elif name == "time":
            self.run_cell(line)

    def run_file(self, words: list[str]) -> None:
        """Run a script or notebook with its arguments; only `-i` shows it the notebook's names. It keeps its names."""
        options = []
        while words and words[0].startswith("-"):
            options.append(words.pop(0))
        if not words:  # an error in IPython, too
            raise ValueError("%run names no file; give it one, as in %run helper.py")
        path = Path(words[0].replace(".", "/") if "-m" in options else words[0]).expanduser()
        path = path if path.exists() else path.with_name(f"{path.name}.py")
        text = path.read_text(encoding="utf-8")
        cells = [text]
        if path.suffix == ".ipynb":
            cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        name = path.stem if "-n" in options else "__main__"
        own = {"__name__": name, "__file__": str(path), "__builtins__": builtins}
        namespace, before = self.user_ns if "-i" in options else own, sys.argv
        sys.argv = [str(path), *words[1:]]
        try:
            with contextlib.suppress(SystemExit):
                for cell in cells:
                    exec(compile(plain_python(cell), str(path), "exec"), namespace)
        finally:
            sys.argv = before
            self.user_ns.update({key: value for key, value in namespace.items() if not key.startswith("__")})

    def push(self, variables: dict, *args: Any, **options: Any) -> None:
        """Add these names to the notebook."""
        self.user_ns.update(variables)

    def captured(self) -> SimpleNamespace:
        """Return an empty capture for `%%capture NAME`."""
        return SimpleNamespace(stdout="", stderr="", outputs=[], show=_nothing)

    def getoutput(self, command: str, *args: Any, **options: Any) -> None:
        """Refuse `names = !command`."""
        raise NoProgramsError(NO_PROGRAMS.format(command))

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
        from numba.core.caching import NullCache

        for name, module in list(sys.modules.items()):
            if name.startswith("numba.") and hasattr(module, "FunctionCache"):
                setattr(module, "FunctionCache", lambda function: NullCache())  # noqa: B010


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing, with any arguments."""
