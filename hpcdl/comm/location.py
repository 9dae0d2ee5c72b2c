"""Where code stands: the line a person wrote, with the name they know it by ("Cell In[5], line 3")."""

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
    reverse=True,  # the folder of packages lies in the standard library's
)
_LIBRARIES = (*OURS, *_INSTALLED, "<frozen")


class SourceLine(NamedTuple):
    """One line of code: file as Python knows it, line number, name of the function."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, empty where it cannot be had (a notebook's cell is known to its kernel alone)."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self):
        return f"{friendly_name(self.file)}, line {self.line}"

    def shown(self) -> str:
        """File, line and text on one line, for messages."""
        return f"{self}: {self.source}" if self.source else str(self)


def friendly_name(file: str) -> str:
    """How a person knows the file: "Cell In[5]" in a notebook, else its path from the working directory or its package.

    Never a path of the machine.
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
    """Whether a person wrote the line: it is not of this library, the checks, Python or an installed package."""
    return not line.file.startswith(_LIBRARIES)


def lines_of(frame: FrameType | None) -> list[SourceLine]:
    """The stack that ends in `frame`, outermost call first."""
    lines = []
    while frame is not None and type(frame.f_code) is CodeType:  # a frame of another thread may end meanwhile
        line = frame.f_lineno or line_at(frame.f_code, frame.f_lasti)
        lines.append(SourceLine(frame.f_code.co_filename, line, frame.f_code.co_name))
        frame = frame.f_back
    return lines[::-1]


def lines_of_traceback(traceback: TracebackType | None) -> list[SourceLine]:
    """The lines an exception passed through, outermost call first."""
    lines = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        line = traceback.tb_lineno or line_at(code, traceback.tb_lasti)
        lines.append(SourceLine(code.co_filename, line, code.co_name))
        traceback = traceback.tb_next
    return lines


def line_at(code: CodeType, offset: int) -> int:
    """The line of the instruction at `offset`; of one that has none, as a jump back in a loop, that of the one before.

    Python gives None there, and an exception that a time limit sends may be raised there.
    """
    before = [line for start, _, line in code.co_lines() if line is not None and start <= offset]
    return before[-1] if before else code.co_firstlineno


def caller(lines: list[SourceLine]) -> SourceLine | None:
    """The innermost line that a person wrote; None where none of them is."""
    return next((line for line in reversed(lines) if is_own(line)), None)
