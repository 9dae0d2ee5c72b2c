"""What a notebook's cells did when they last ran: whether the kernel holds the functions that stand in the notebook.

A cell with a syntax error, or one whose function was renamed, leaves its old function behind; a check of that one would
speak of lines which are no longer there.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from autograder.inside import magics, source

DEFINITION = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
ABSENT = object()


@dataclass
class CellRun:
    """One run of a cell: the names that it was to define, and those of them that it did not come to."""

    cell: str | None  # its id, where the front end says it
    names: set[str]
    before: dict[str, Any]  # what the names meant
    missing: set[str] = field(default_factory=set)
    problem: str = ""


class Cells:
    """The last run of each cell, and of each name the last cell that was to define it."""

    def __init__(self, namespace: dict):
        self.namespace = namespace
        self.by_cell: dict[str | None, CellRun] = {}
        self.by_name: dict[str, CellRun] = {}
        self.now = CellRun(None, set(), {})

    def begin(self, info: Any) -> None:
        """A cell begins to run (`info` is IPython's)."""
        names = names_in(info.raw_cell)
        self.now = CellRun(getattr(info, "cell_id", None), names, {n: self.namespace.get(n, ABSENT) for n in names})
        self.by_cell[self.now.cell] = self.now
        self.by_name.update(dict.fromkeys(names, self.now))

    def end(self, result: Any) -> None:
        """It has ended (`result` is IPython's)."""
        if error := result.error_before_exec or result.error_in_exec:
            self.now.problem = said(error)
            unmade = {name for name in self.now.names if self.namespace.get(name, ABSENT) is self.now.before[name]}
            self.now.missing = self.now.names if result.error_before_exec else unmade

    def outdated(self, name: str) -> str:
        """Why the kernel's `name` is not what stands in the notebook, and what to do; empty where it is."""
        run = self.by_name.get(name)
        if run is None:
            return ""
        if name in run.missing:
            return (
                f"The cell that defines `{name}` did not run: {run.problem} Mend it, run it, and then check: until "
                "then there is nothing new to check."
            )
        latest = self.by_cell[run.cell]
        if run.cell is None or latest is run:
            return ""
        return renamed(name, sorted(latest.names - run.names))


def renamed(name: str, new: list[str]) -> str:
    """What to do about a cell that defined `name` once, and now defines the names `new`."""
    if new:
        return f"The cell that defined `{name}` now defines `{new[0]}`: call it `{name}`, run the cell, and then check."
    return f"The cell that defined `{name}` does not do so any more: write it there, run the cell, and then check."


def names_in(text: str) -> set[str]:
    """The names that a cell defines; where it is no Python yet, those of its functions and classes."""
    code = magics.plain_python(text)
    return source.defined_names([("cell", code)]) or set(DEFINITION.findall(code))


def said(error: BaseException) -> str:
    """`SyntaxError in line 3: invalid syntax.`"""
    where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}{where}{': ' + text[:200].rstrip('.') if text else ''}."


def watched(shell: Any) -> Cells:
    """The cells of IPython's `shell`, from now on."""
    cells = Cells(shell.user_ns)
    shell.events.register("pre_run_cell", cells.begin)
    shell.events.register("post_run_cell", cells.end)
    return cells
