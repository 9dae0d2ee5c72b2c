"""Locations in code: the line a person wrote, with a name they recognise ("Cell In[5], line 3")."""

import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
OURS = tuple(f"{_ROOT / name}{os.sep}" for name in ("hpcdl", "autograder"))
_INSTALLED = sorted(
    {f"{path}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))}
    | {f"{os.path.dirname(os.__file__)}{os.sep}"},
    key=len,
    reverse=True,  # the folder of packages is inside the standard library's
)
_LIBRARIES = (*OURS, *_INSTALLED, "<frozen")


class SourceLine(NamedTuple):
    """One line of code: Python's file name, line number, function name."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """Return the text of the line; empty if it is not available (only the kernel knows a notebook's cell)."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self):
        return f"{friendly_name(self.file)}, line {self.line}"

    def shown(self) -> str:
        """Return file, line and text on one line, for messages."""
        return f"{self}: {self.source}" if self.source else str(self)


def friendly_name(file: str) -> str:
    """Return a recognisable name for the file: "Cell In[5]" in a notebook, else its path from the working directory or
    its package.

    It never shows an absolute path.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = shell.compile.format_code_name(file) if shell and hasattr(shell.compile, "format_code_name") else None
    if cell:
        return " ".join(cell)
    for folder in (*_INSTALLED, f"{os.getcwd()}{os.sep}"):
        if file.startswith(folder):
            return file.removeprefix(folder)
    return file if file.startswith("<") else os.path.basename(file)


def is_own(line: SourceLine) -> bool:
    """Return whether the user wrote the line: it is not in this library, the checks, Python or an installed package."""
    return not line.file.startswith(_LIBRARIES)


def lines_of(frame: FrameType | None) -> list[SourceLine]:
    """Return the stack that ends in `frame`, outermost call first."""
    lines = []
    while frame is not None and type(frame.f_code) is CodeType:  # a frame of another thread may end meanwhile
        line = frame.f_lineno or line_at(frame.f_code, frame.f_lasti)
        lines.append(SourceLine(frame.f_code.co_filename, line, frame.f_code.co_name))
        frame = frame.f_back
    return lines[::-1]


def lines_of_traceback(traceback: TracebackType | None) -> list[SourceLine]:
    """Return the lines an exception passed through, outermost call first."""
    lines = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        line = traceback.tb_lineno or line_at(code, traceback.tb_lasti)
        lines.append(SourceLine(code.co_filename, line, code.co_name))
        traceback = traceback.tb_next
    return lines


def line_at(code: CodeType, offset: int) -> int:
    """Return the line of the instruction at `offset`, or of the one before if it has no line (a loop's jump back).

    Python gives None for it, and a time limit's exception may be raised there.
    """
    before = [line for start, _, line in code.co_lines() if line is not None and start <= offset]
    return before[-1] if before else code.co_firstlineno


def caller(lines: list[SourceLine]) -> SourceLine | None:
    """Return the innermost line that the user wrote, or None."""
    return next((line for line in reversed(lines) if is_own(line)), None)
