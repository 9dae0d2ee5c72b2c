"""Which statements of a notebook the graded functions need: their definitions, and what those use, transitively.

Imports, helpers and constants that are used run, in the notebook's order; plots, widgets, cluster cells, training runs
and `check(...)` do not, since nothing that is graded uses the names they bind.
"""

import ast
import difflib
import re
import symtable
from dataclasses import dataclass, field
from functools import cache, lru_cache

CELL_MAGIC = re.compile(r"^\s*%%(px|time|capture|timeit|prun)\b[^\n]*")
OTHER_CELL_MAGIC = re.compile(r"^\s*%%\w+")
LINE_END = re.compile(r"\r\n?|\n")
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@dataclass
class Statement:
    """A top-level statement: where it stands, the names it binds and those it uses."""

    label: str
    start: int
    end: int
    node: ast.stmt
    binds: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)

    def code(self, sources: dict[str, str]) -> str:
        """The statement alone, on the line numbers of its cell."""
        lines = lines_of(sources[self.label])
        return "\n" * (self.start - 1) + "\n".join(lines[self.start - 1 : self.end]) + "\n"

    @property
    def is_stub(self) -> bool:
        """A definition with a function that is still as the lab gave it."""
        return any(_is_stub(node) for node in ast.walk(self.node) if isinstance(node, ast.FunctionDef))


def needed(cells: list[tuple[str, str]], names: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The statements that define `names`, with what they need, as (label, source); and notes for the student."""
    sources, notes = dict(cells), []
    statements = []
    for label, source in cells:
        try:
            statements += _statements(label, source)
        except PARSE_ERRORS as error:
            notes.append(f"{label} does not compile and was left out: {_reason(error)}")
    notes += _misnamed(statements, names)
    statements = _without_stubs(statements, names, notes)
    chosen = _closure(statements, set(names))
    return [(f"{s.label}:{s.start}", s.code(sources)) for s in statements if id(s) in chosen], notes


def _misnamed(statements: list[Statement], names: list[str]) -> list[str]:
    """A note for each function that is missing where there is one of nearly that name."""
    bound = {name for statement in statements for name in statement.binds}
    functions = {s.node.name for s in statements if isinstance(s.node, ast.FunctionDef | ast.ClassDef)} - set(names)
    near = {name: difflib.get_close_matches(name, functions, n=1) for name in names if name not in bound}
    return [f"`{name}` is not defined: found `{found[0]}`: rename it?" for name, found in near.items() if found]


def defined_names(cells: list[tuple[str, str]]) -> set[str]:
    """The names that the cells bind at top level."""
    found: set[str] = set()
    for label, source in cells:
        try:
            found.update(*(statement.binds for statement in _statements(label, source)))
        except PARSE_ERRORS:
            continue
    return found


def plain_python(source: str) -> str:
    """A cell without its magics: `%%px` and `%%time` give their body, `%x` and `!x` become calls nobody makes."""
    if CELL_MAGIC.match(source):
        source = CELL_MAGIC.sub("", source, count=1)
    elif OTHER_CELL_MAGIC.match(source):
        return ""  # another language, or a file
    if not re.search(r"[%!?]", source) or _is_python(source):
        return source
    try:
        return transformer().transform_cell(source)
    except Exception:  # the transformer gives up on code that is no Python either: the parser will say so
        return source


def _is_python(source: str) -> bool:
    try:
        parse(source)
    except PARSE_ERRORS:
        return False
    return True


@lru_cache(maxsize=256)
def parse(source: str) -> ast.Module:
    """The syntax tree of a piece of code. Nobody changes it: it is asked for several times."""
    return ast.parse(source)


def lines_of(source: str) -> list[str]:
    """The lines as Python counts them; `str.splitlines` also ends one at a form feed or a Unicode separator."""
    return LINE_END.split(source)


@cache
def transformer():
    """IPython's, which turns magics into calls; imported on first use."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager()


@lru_cache(maxsize=256)  # the self-check asks about the same cells a thousand times
def _statements(label: str, source: str) -> list[Statement]:
    """The top-level statements of a cell; nobody changes them."""
    nodes, lines = parse(source).body, lines_of(source)
    found: list[Statement] = []
    begins = [min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) for node in nodes]
    for node, start, after in zip(nodes, begins, [*begins[1:], None], strict=False):
        end = node.end_lineno or node.lineno
        shared = after == end or (found and found[-1].end == start)  # as in `a = 1; b = 2`
        text = ast.unparse(node) if shared else "\n".join(lines[start - 1 : end])
        found.append(Statement(label, start, end, node, *_names(node, text)))
    return found


def _names(node: ast.stmt, text: str) -> tuple[set[str], set[str]]:
    """The global names that a statement binds, and those it uses, also inside its functions."""
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        return {"*"}, set()
    table = symtable.symtable(text, "<cell>", "exec")
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    for inner in _descendants(table):
        for symbol in inner.get_symbols():
            if symbol.is_global():
                uses.add(symbol.get_name())
    return binds | _changed(node), uses


def _is_stub(function: ast.FunctionDef) -> bool:
    """Nothing but a docstring and `raise NotImplementedError`."""
    rest = [node for node in function.body if not isinstance(node, ast.Expr)]
    return len(rest) == 1 and isinstance(rest[0], ast.Raise) and "NotImplementedError" in ast.dump(rest[0])


def _descendants(table):
    for child in table.get_children():
        yield child
        yield from _descendants(child)


def _changed(node: ast.stmt) -> set[str]:
    """Names of objects that a statement changes: `table[0] = ...`, `net.rate = ...`, `cache.update(...)`."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return set()
    targets = [
        t for t in ast.walk(node) if isinstance(t, ast.Subscript | ast.Attribute) and isinstance(t.ctx, ast.Store)
    ]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        targets.append(node.value.func)
    return {root.id for root in map(_root, targets) if isinstance(root, ast.Name)}


def _root(node):
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node


def _without_stubs(statements: list[Statement], names: list[str], notes: list[str]) -> list[Statement]:
    """Leave out stubs of functions that are written elsewhere; note which of several definitions counts."""
    dropped = set()
    for name in names:
        defining = [s for s in statements if name in s.binds and not isinstance(s.node, ast.Expr)]
        written = [s for s in defining if not s.is_stub]
        if written:
            dropped |= {id(s) for s in defining if s.is_stub}
        if len(written) > 1:
            notes.append(f"`{name}` is defined {len(written)} times; the last one, in {written[-1].label}, counts")
    return [s for s in statements if id(s) not in dropped]


def _closure(statements: list[Statement], wanted: set[str]) -> set[int]:
    """The ids of the statements that bind a wanted name, or one that those use, and so on."""
    imported = {name for s in statements if isinstance(s.node, ast.Import | ast.ImportFrom) for name in s.binds}
    chosen, todo = set(), {*wanted, "*"}
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        seen.add(name)
        for statement in statements:
            if name not in statement.binds or id(statement) in chosen:
                continue
            if isinstance(statement.node, ast.Expr) and (name in imported or name in wanted):
                continue  # `torch.manual_seed(0)` or `plt.show()` is no part of a definition
            chosen.add(id(statement))
            todo |= statement.uses - seen
    return chosen


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})"
    return "it is nested too deep" if isinstance(error, RecursionError | MemoryError) else str(error)[:100]
