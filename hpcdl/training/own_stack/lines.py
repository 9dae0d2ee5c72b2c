"""How many lines of code really ran, and whose they are.

A line counts if it is code of a function that ran, not a blank line, comment or docstring. A function counts once,
however often and on however many ranks it ran, with the functions inside it; in a class only the methods that ran
count.
"""

import ast
import fnmatch
import functools
import io
import linecache
import sysconfig
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import hpcdl
from hpcdl.training.own_stack import lent
from hpcdl.training.own_stack.bricks import BRICKS, brick_of
from hpcdl.training.own_stack.witness import IN_C, Execution, Function

LIBRARY = Path(hpcdl.__file__).resolve().parent
OTHERS = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
MACHINE = (  # with everything it uses, as a test checks
    *("comm", "cluster", "data", "memory", "kernels", "lazy", "machine", "saying", "training.own_stack.witness"),
    *("files", "interrupt", "numerics.exact"),
)
READY_MADE = {  # torch operators that are a brick
    "convolution": ("*::*conv[!e]*",),  # all with convolution in the name; not `_convert_...`
    "tape": ("aten::*softmax*", "aten::*cross_entropy*", "aten::nll_loss*"),
    "ring": ("c10d::*", "comm.*"),
}
REDUCTIONS = (  # the machine's own, and MPI's
    *("all_reduce", "_all_reduce", "allreduce", "Allreduce", "Iallreduce"),
    *("Reduce", "Ireduce", "Reduce_scatter", "Reduce_scatter_block"),
)
OTHER = "others"  # your helpers outside bricks' cells; other library code that ran
NOT_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class CodeUnit(NamedTuple):
    """A top-level function of a file, or a method of a top-level class."""

    file: str
    first: int
    name: str  # of the top-level definition
    lines: int


class Tally(NamedTuple):
    """Lines by brick: the notebook's, the library's and the lab's; torch operators that replace a brick, by brick; how
    often each function of a brick was called on rank 0.
    """

    yours: dict[str, int]
    lent: dict[str, int]
    given: int
    ready_made: dict[str, list[str]]
    calls: dict[str, int]

    @property
    def is_all_yours(self) -> bool:
        """Return whether no brick came from the library, torch or the machine."""
        return not self.lent and not any(brick in self.ready_made for brick in self.yours)

    def __str__(self):
        own = sum(self.yours.values())
        if self.is_all_yours:
            return f"{own} lines, all yours."
        said = f"{own} of {own + sum(self.lent.values())} lines are yours"
        if self.lent:
            said += f"; lent: {', '.join(self.lent)}"
        borrowed = [
            f"{brick} ({', '.join(self.ready_made[brick])})" for brick in self.yours if brick in self.ready_made
        ]
        return said + (f"; ready-made code ran in {', '.join(borrowed)}" if borrowed else "") + "."


def tally(executions: Iterable[Execution], namespace: dict, own: Iterable[str], given: Iterable[str]) -> Tally:
    """Count whose lines ran on the ranks; `given` are the names of functions that the lab wrote.

    `own` are the notebook's bricks; its other functions that ran also count.
    """
    executions = list(executions)
    cells = {_file(namespace[f]): brick for brick in own for f in BRICKS[brick].functions if f in namespace}
    yours: dict[str, int] = {}
    lent_lines: dict[str, int] = {}
    given_lines, given_names = 0, set(given)
    for unit in _units(executions):
        if _is_library(unit.file):
            brick = _lender(unit)
            if brick:
                lent_lines[brick] = lent_lines.get(brick, 0) + unit.lines
        elif unit.name in given_names:
            given_lines += unit.lines
        else:
            brick = cells.get(unit.file) or brick_of(unit.name) or OTHER
            yours[brick] = yours.get(brick, 0) + unit.lines
    operators = {name for execution in executions for name in execution.operators} | _machines_own(executions)
    return Tally(_ordered(yours), _ordered(lent_lines), given_lines, _ready_made(operators), _calls(executions[0]))


def _units(executions: list[Execution]) -> set[CodeUnit]:
    functions = {function for each in executions for function in each.functions}
    return {unit for function in functions if (unit := unit_of(function))}


def unit_of(function: Function) -> CodeUnit | None:
    """Return the unit that a function counts with; None for functions of Python, torch and other packages."""
    if function.file.startswith("<") and not function.file.startswith("<ipython"):
        return None
    if not _is_library(function.file) and function.file.startswith(OTHERS):
        return None
    for first, last, name, lines in _parsed(function.file):
        if first <= function.line <= last:
            return CodeUnit(function.file, first, name, lines)
    return None


@functools.cache
def _is_library(file: str) -> bool:
    return Path(file).resolve().is_relative_to(LIBRARY)


@functools.cache
def _parsed(file: str) -> list[tuple[int, int, str, int]]:
    """Return, for each top-level function or method of a top-level class: first line, last line, top-level name, lines
    of code."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a cell with a magic is not Python
        return []
    counted = code_lines(text)
    found = []
    for top in tree.body:
        name = getattr(top, "name", "") or ", ".join(ast.unparse(target) for target in getattr(top, "targets", []))
        for node in top.body if isinstance(top, ast.ClassDef) else [top]:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            last = node.end_lineno or first
            found.append((first, last, name, len(counted & set(range(first, last + 1)))))
    return found


def code_lines(text: str) -> set[int]:
    """Return the numbers of the lines with code, without blank lines, comments and docstrings. Raises SyntaxError."""
    lines = {
        row
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NOT_CODE
        for row in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and ast.get_docstring(node, False):
            doc = node.body[0]
            lines -= set(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
    return lines


def _lender(unit: CodeUnit) -> str | None:
    """Return the brick of a library function; None for the machine below the bricks."""
    parts = Path(unit.file).resolve().relative_to(LIBRARY).with_suffix("").parts
    module = ".".join(parts)
    if f"hpcdl.{module}" == lent.__name__:
        return brick_of(unit.name) or lent.HELPERS[unit.name]
    for name, brick in BRICKS.items():
        if any(f"hpcdl.{module}.".startswith(f"{home}.") for home in brick.homes):
            return name
    return None if any(f"{module}.".startswith(f"{below}.") for below in MACHINE) else OTHER


def _machines_own(executions: list[Execution]) -> set[str]:
    """Return the communicator's ready-made sums over ranks that ran."""
    names = {function.name for each in executions for function in each.functions if _is_machine(function.file)}
    lasts = {name.rpartition(".")[2] for name in names}
    return {f"comm.{last.lstrip('_')}" for last in lasts & {*REDUCTIONS}}


def _is_machine(file: str) -> bool:
    return file == IN_C or Path(file).resolve().is_relative_to(LIBRARY / "comm")


def _ready_made(operators: set[str]) -> dict[str, list[str]]:
    found = {
        brick: sorted(name for name in operators if any(fnmatch.fnmatch(name, pattern) for pattern in patterns))
        for brick, patterns in READY_MADE.items()
    }
    return {brick: names for brick, names in found.items() if names}


def _calls(execution: Execution) -> dict[str, int]:
    found: dict[str, int] = {}
    for function, count in execution.functions.items():
        name = function.name.removesuffix(".__init__")
        if brick_of(name) and unit_of(function):
            found[name] = found.get(name, 0) + count
    return found


def _ordered(lines: dict[str, int]) -> dict[str, int]:
    return {brick: lines[brick] for brick in (*BRICKS, OTHER) if brick in lines}


def _file(function: object) -> str:
    """Return the source file of a function, or of a class's first method."""
    methods = [m for m in vars(function).values() if hasattr(m, "__code__")] if isinstance(function, type) else []
    code = getattr((methods or [function])[0], "__code__", None)
    return code.co_filename if code else ""
