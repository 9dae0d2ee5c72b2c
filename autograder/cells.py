"""Track the notebook's last cell runs: whether the kernel holds the functions in the notebook.

A cell with a syntax error, or with a renamed function, leaves its old function behind; a check of that one would
mention lines that no longer exist.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from autograder.inside import magics, source

DEFINITION = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
ABSENT = object()


@dataclass
class CellRun:
    """One run of a cell: the names that it should define, and the ones it did not reach."""

    cell: str | None  # its id, if the front end gives it
    names: set[str]
    before: dict[str, Any]  # the names' values before
    missing: set[str] = field(default_factory=set)
    problem: str = ""


class Cells:
    """The last run of each cell, and for each name the last cell that should define it."""

    def __init__(self, namespace: dict):
        self.namespace = namespace
        self.by_cell: dict[str | None, CellRun] = {}
        self.by_name: dict[str, CellRun] = {}
        self.now = CellRun(None, set(), {})

    def begin(self, info: Any) -> None:
        """Note that a cell begins to run (`info` is IPython's)."""
        names = names_in(info.raw_cell)
        self.now = CellRun(getattr(info, "cell_id", None), names, {n: self.namespace.get(n, ABSENT) for n in names})
        self.by_cell[self.now.cell] = self.now
        self.by_name.update(dict.fromkeys(names, self.now))

    def end(self, result: Any) -> None:
        """Note that it has ended (`result` is IPython's)."""
        if error := result.error_before_exec or result.error_in_exec:
            self.now.problem = said(error)
            unmade = {name for name in self.now.names if self.namespace.get(name, ABSENT) is self.now.before[name]}
            self.now.missing = self.now.names if result.error_before_exec else unmade

    def outdated(self, name: str) -> str:
        """Say why the kernel's `name` differs from the notebook's, and what to do; empty if they agree."""
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
    """Say what to do about a cell that once defined `name`, and now defines the names `new`."""
    if new:
        return f"The cell that defined `{name}` now defines `{new[0]}`: call it `{name}`, run the cell, and then check."
    return f"The cell that defined `{name}` no longer does so: write it there, run the cell, and then check."


def names_in(text: str) -> set[str]:
    """Return the names that a cell defines; if it is not valid Python, only its functions and classes."""
    code = magics.plain_python(text)
    return source.defined_names([("cell", code)]) or set(DEFINITION.findall(code))


def said(error: BaseException) -> str:
    """`SyntaxError in line 3: invalid syntax.`"""
    where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}{where}{': ' + text[:200].rstrip('.') if text else ''}."


def watched(shell: Any) -> Cells:
    """Watch the cells of IPython's `shell` from now on."""
    cells = Cells(shell.user_ns)
    shell.events.register("pre_run_cell", cells.begin)
    shell.events.register("post_run_cell", cells.end)
    return cells
