"""Find the line in which a cell stopped: it raised there, so the statements after it have not run in the notebook."""

import ast
import re
from typing import Any

from .facts import Definition, root_of
from .magics import CELL_MAGIC
from .syntax import lines_of

COLOR = re.compile(r"\x1b\[[\d;]*m")
ARROW = re.compile(r"^-+> *(\d+) ?(.*)$", re.MULTILINE)  # of a traceback, first in the cell itself
TIMED = re.compile(r"^File <timed exec>:(\d+)", re.MULTILINE)  # the body of `%%time`, which has no text there
UNKNOWN = re.compile(r"UsageError: Line magic function `(%\w+)` not found")  # in a stream, without a traceback
MAGIC = ("%", "!")
ENDS = ("exit", "_exit", "quit")
OPEN = ast.If | ast.With | ast.Try | ast.Match  # statements without a loop, which could be slow


def saved(cell: dict, source: str) -> int | None:
    """Return the line of a code cell in which the error in its outputs was raised; 0 if unknown, None without error."""
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        if isinstance(output, dict) and output.get("output_type") == "error":
            return _line(output.get("traceback"), lines_of(source))
        if isinstance(output, dict) and (unknown := UNKNOWN.match(_text(output.get("text")))):
            return next((n for n, line in enumerate(lines_of(source), 1) if line.strip().startswith(unknown[1])), 0)
    return None


def _text(lines: Any, between: str = "") -> str:
    return COLOR.sub("", between.join(map(str, lines)) if isinstance(lines, list) else str(lines))


def _line(traceback: Any, lines: list[str]) -> int:
    text = _text(traceback, "\n")
    first = next((i for i, line in enumerate(lines) if line.strip() and not CELL_MAGIC.match(line)), 0)
    if timed := TIMED.search(text):
        return int(timed[1][:9]) + first
    if not (arrow := ARROW.search(text)):
        return 0
    number, shown = int(arrow[1][:9]), arrow[2].strip()
    for line in (number + first, number):  # IPython counts without blank lines and magics at the beginning
        own = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        if own == shown or (own.startswith(MAGIC) and "get_ipython()" in shown):
            return line
    return 0


def is_stop(node: ast.stmt) -> bool:
    """Whether a statement always raises: `raise`, `sys.exit()`."""
    call = node.value if isinstance(node, ast.Expr) else None
    ends = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ENDS
    return isinstance(node, ast.Raise) or (ends and call is not None and root_of(call) in ("sys", "os"))


def may_stop(node: ast.stmt) -> bool:
    """Whether a statement without a loop may raise on purpose: `if x: raise ValueError`."""
    return is_stop(node) or (isinstance(node, OPEN) and any(map(is_stop, _run_by(node))))


def _run_by(node: ast.AST):
    """Yield the statements inside `node`, except those of functions, classes and loops."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, Definition | ast.For | ast.While | ast.AsyncFor | ast.Lambda):
            yield from _run_by(child)
