"""A substitute for IPython in grading: `display` shows nothing, `get_ipython()` returns a quiet stand-in."""

import builtins
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from . import known_magics as known
from .absent import (
    NO_CAPTURE,
    NO_PROGRAMS,
    NO_SHELL,
    NO_VALUE,
    NOT_RUN,
    Absent,
    Capture,
    NoProgramsError,
    Outputs,
    QuietObject,
)
from .library import CHECKS
from .line_magics import LineMagics
from .magics import plain_python


class Shell(LineMagics):
    """IPython's shell as far as a cell of an answer can notice; calls of its other methods raise a sentence."""

    def __init__(self, namespace: dict):
        super().__init__()
        self.user_ns = self.user_global_ns = namespace
        self.config: dict[str, dict] = {"IPKernelApp": {}}

    def writefile(self, path: str, text: str, append: bool = False) -> None:
        """Do what `%%writefile PATH` does."""
        target = Path(self.expanded(path)).expanduser()
        before = target.stat().st_mtime + 1 if target.exists() else 0
        with open(target, "a" if append else "w", encoding="utf-8") as file:
            file.write(text)
        if target.stat().st_mtime < before:  # newer by its time, too, as in a notebook
            os.utime(target, (before, before))

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Run `cell` as the body of `%%name line`."""
        self.run_cell(f"%%{name} {line}\n{cell}")

    def ev(self, source: str) -> Any:
        """Return the value of an expression."""
        return eval(source, self.user_ns)

    def transform_cell(self, source: str) -> str:
        """Return a cell as Python."""
        return plain_python(source)

    def del_var(self, name: str, *args: Any, **options: Any) -> None:
        """Remove a name."""
        self.user_ns.pop(name, None)

    def drop_by_id(self, variables: dict) -> None:
        """Remove the names that still have these values."""
        for name, value in variables.items():
            if self.user_ns.get(name) is value:
                del self.user_ns[name]

    def push(self, variables: dict, *args: Any, **options: Any) -> None:
        """Add these names to the notebook."""
        self.user_ns.update(variables)

    def captured(self, name: str) -> Absent:
        """Return a capture for `%%capture NAME`, without outputs."""
        return Capture(NO_CAPTURE.format(name))

    def no_program(self, magic: str) -> Absent:
        """Return what `%%bash --out NAME` would bind."""
        return Absent(NO_VALUE.format(magic))

    def left_out(self, magic: str, name: str) -> Any:
        """Return the value of a name that a magic of the student's own may have bound: its value so far, if any."""
        return self.user_ns.get(name, Absent(NOT_RUN.format(magic)))

    def getoutput(self, command: str, *args: Any, **options: Any) -> None:
        """Refuse `names = !command`."""
        raise NoProgramsError(NO_PROGRAMS.format(command))

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in known.QUIET_METHODS or name.startswith("init_"):
            return _nothing
        return QuietObject() if name in known.QUIET_OBJECTS else Absent(NO_SHELL.format(name))


Shell.__name__ = "ZMQInteractiveShell"  # cells ask for it: is this a notebook?
installed: list[Shell] = []  # in a worker: one


def install(namespace: dict) -> None:
    """Give cells in `namespace` IPython's names, and let them import files that they write, and `check`."""
    shell = Shell(namespace)
    installed.append(shell)
    builtins.get_ipython = lambda: shell  # type: ignore[attr-defined]
    builtins.display = display  # type: ignore[attr-defined]
    vars(sys.modules[CHECKS])["check"] = _nothing  # an import of it may share its statement, or a module, with others
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


class DisplayHandle:
    """What `display(..., display_id=...)` returns."""

    def __init__(self, name: Any):
        self.display_id = name

    def update(self, *args: Any, **options: Any) -> None:
        """Show nothing."""

    display = update


def display(*args: Any, display_id: Any = None, **options: Any) -> DisplayHandle | None:
    """Show nothing; return a handle if there is to be one."""
    return DisplayHandle(display_id) if display_id else None


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing, with any arguments."""
