"""A substitute for IPython in grading: `display` shows nothing, `get_ipython()` returns a quiet stand-in."""

import builtins
import contextlib
import importlib
import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .magics import plain_python, split

NO_OUTPUTS = "`Out` and `_` have what a cell has shown, and grading shows nothing: give the value a name of its own."
NO_PROGRAMS = (
    "`!{}` runs a program of the machine, and grading runs none: write the value itself, or compute it in Python."
)
NO_CAPTURE = "`%%capture {}` keeps what a cell has shown, and grading shows nothing: give the value a name of its own."
NO_STORE = (
    "`%store -r {}` reads what another notebook has stored, and grading has only this notebook: compute the value here."
)
NO_VALUE = "`%{}` has no value in grading: write the value itself, or compute it in Python."


class NoProgramsError(RuntimeError):
    """A cell asks for the output of a shell line."""


class NoOutputsError(LookupError):
    """A cell asks for another cell's output."""


class Outputs(dict):
    """IPython's `Out`, always empty."""

    def refuse(self, *args: Any) -> Any:
        raise NoOutputsError(NO_OUTPUTS)

    __getitem__ = __iter__ = get = pop = keys = values = items = refuse


class Absent:
    """A value that grading does not have: it may have a name, and any use raises."""

    def __init__(self, reason: str):
        self.__dict__["reason"] = reason

    def refuse(self, *args: Any) -> Any:
        raise NoOutputsError(self.reason)

    def show(self) -> None:
        """Show nothing, as a capture's `show`."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.refuse()

    __call__ = show
    __getitem__ = __iter__ = __len__ = __bool__ = __str__ = __float__ = __int__ = __eq__ = __lt__ = __gt__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = refuse
    __hash__ = object.__hash__


class Shell:
    """IPython's shell as far as a cell of an answer can notice; unknown methods do nothing."""

    def __init__(self, namespace: dict):
        self.user_ns = namespace
        self.times: dict[str, float] | None = None  # of own modules, while `%autoreload` is on

    def setenv(self, name: str, value: str) -> None:
        """Do what `%env NAME=value` does."""
        os.environ[name] = self.expanded(value)

    def writefile(self, path: str, text: str, append: bool = False) -> None:
        """Do what `%%writefile PATH` does."""
        target = Path(self.expanded(path)).expanduser()
        before = target.stat().st_mtime + 1 if target.exists() else 0
        with open(target, "a" if append else "w", encoding="utf-8") as file:
            file.write(text)
        if target.stat().st_mtime < before:  # newer by its time, too, as in a notebook
            os.utime(target, (before, before))

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

    def run_line_magic(self, name: str, line: str, *args: Any) -> Any:
        """Do what a magic does to the notebook's names; others do nothing, and have no value."""
        words = split(self.expanded(line))
        names = [word for word in words if not word.startswith("-")]
        if name == "run":
            return self.run_file(words)
        if name == "time":
            return self.run_cell(line)
        if name == "pwd":
            return os.getcwd()
        if name == "autoreload":
            self.times = None if names[:1] in (["0"], ["off"]) else {}
            return self.reload_changed()
        if name in ("reset", "reset_selective", "xdel"):
            pattern = {"reset": "[^_]", "reset_selective": " ".join(names)}.get(name) or "|".join(map(re.escape, names))
            for found in [each for each in self.user_ns if re.search(pattern, each) and not each.startswith("_")]:
                if name != "xdel" or found in names:
                    del self.user_ns[found]
            return None
        return Absent(NO_VALUE.format(name))

    def reload_changed(self) -> None:
        """Load own modules again whose files have changed, as `%autoreload` does before each cell."""
        if self.times is None:
            return
        home = str(Path.home().resolve())
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if type(file) is not str or not os.path.realpath(file).startswith(home) or not os.path.exists(file):
                continue
            time = os.stat(file).st_mtime
            if self.times.setdefault(name, time) != time:
                self.times[name], before = time, dict(vars(module))
                with contextlib.suppress(Exception):  # IPython keeps the old module, too
                    importlib.reload(module)
                for mine, value in list(self.user_ns.items()):  # what was imported from it
                    if mine in before and before[mine] is value and mine in vars(module):
                        self.user_ns[mine] = vars(module)[mine]

    def stored(self, name: str) -> Any:
        """Return the value for `%store -r NAME` if this notebook has one."""
        if name not in self.user_ns:
            raise NoOutputsError(NO_STORE.format(name))
        return self.user_ns[name]

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

    def captured(self, name: str) -> Absent:
        """Return a capture for `%%capture NAME`, without outputs."""
        return Absent(NO_CAPTURE.format(name))

    def getoutput(self, command: str, *args: Any, **options: Any) -> None:
        """Refuse `names = !command`."""
        raise NoProgramsError(NO_PROGRAMS.format(command))

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


installed: list[Shell] = []  # in a worker: one


def install(namespace: dict) -> None:
    """Give cells in `namespace` IPython's names, and let them import files that they write."""
    shell = Shell(namespace)
    installed.append(shell)
    builtins.get_ipython = lambda: shell  # type: ignore[attr-defined]
    builtins.display = display  # type: ignore[attr-defined]
    sys.argv = [""]
    namespace.update(In=[""], Out=Outputs())
    sys.dont_write_bytecode = True  # a file that was written twice in a second would be taken for its first text
    if "" not in sys.path:
        sys.path.append("")


def before(code: str) -> None:
    """Prepare for `code`: reload changed modules, and let Numba ignore `cache=True`, which finds no file for a cell."""
    for shell in installed:
        shell.reload_changed()
    if "IPython" in code and installed:
        _stand_in()
    if "cache=" in code and "numba" in sys.modules:
        from numba.core.caching import NullCache

        for name, module in list(sys.modules.items()):
            if name.startswith("numba.") and hasattr(module, "FunctionCache"):
                setattr(module, "FunctionCache", lambda function: NullCache())  # noqa: B010


@cache
def _stand_in() -> None:
    """Give who imports them IPython's functions as here: its own ones return nothing outside a kernel."""
    import IPython
    import IPython.display
    from IPython.core import display_functions, getipython

    for module in (IPython, getipython):
        module.get_ipython = builtins.get_ipython  # type: ignore[attr-defined]
    for module in (IPython, IPython.display, display_functions):
        module.display = display  # type: ignore[attr-defined]


class Handle:
    """What `display(..., display_id=...)` returns."""

    def __init__(self, name: Any):
        self.display_id = name

    def update(self, *args: Any, **options: Any) -> None:
        """Show nothing."""

    display = update


def display(*args: Any, display_id: Any = None, **options: Any) -> Handle | None:
    """Show nothing; return a handle if there is to be one."""
    return Handle(display_id) if display_id else None


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing, with any arguments."""
