"""Find the statements that the graded functions need: their definitions, and everything those use, transitively.

Used imports, helpers and constants run in the notebook's order, and so does everything that may change them
(`effects`, `setups`). Plots, widgets, cluster cells, training runs and `check(...)` do not run, since no graded
function uses the names that they bind or change.
"""

import ast
import difflib
import re
import symtable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from autograder.boundary.own import contextlib

from . import effects, magics, reading, setups, stops
from .facts import Facts, executed, facts_of, root_of
from .syntax import PARSE_ERRORS, lines_of, parse, walked

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
DEFINED = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
CONFLICT = re.compile(r"^<{7} .*^={7}$", re.MULTILINE | re.DOTALL)


@dataclass
class Statement:
    """A top-level statement: its lines, with those that it shares, the names it binds and the names it uses."""

    label: str
    start: int
    end: int
    node: ast.stmt
    binds: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    facts: Facts = field(default_factory=Facts)

    def code(self, sources: dict[str, str]) -> str:
        """Return only the statement's lines, with its cell's line numbers."""
        lines = lines_of(sources[self.label])
        return "\n" * (self.start - 1) + "\n".join(lines[self.start - 1 : self.end]) + "\n"

    @property
    def stubs(self) -> int:
        """How many functions it leaves undone: itself, or methods; not functions inside them."""
        return sum(_is_stub(node) for node in executed(self.node) if isinstance(node, FUNCTION))


def needed(
    cells: list[tuple[str, str]], names: list[str], wider: bool = False
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the statements that define `names`, with what they need, as (label, source); and notes for the student.

    `wider` also includes statements that only mention a needed object.
    """
    sources, notes, broken = dict(cells), [], set()
    statements = []
    for label, source in cells:
        try:
            statements += _statements(label, source)
        except PARSE_ERRORS as error:
            notes.append(f"{label} does not compile and was left out: {_reason(error, source)}")
            broken.update(DEFINED.findall(source))
    notes += _misnamed(statements, [name for name in names if name not in broken], names)
    statements = _without_stubs(statements, names, notes)
    chosen = _closure(statements, set(names), names, wider)
    pieces = {f"{s.label}:{s.start}": s.code(sources) for s in statements if id(s) in chosen}
    return [*pieces.items()], notes


def live(
    cells: list[tuple[str, str]], names: list[str], stopped: dict[str, int]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what `needed(wider=True)` returns without what has not run in the notebook, each cell in one piece, which
    ends where it raises; and the places where cells stopped. Both are empty if every needed statement has run.

    A cell stops in the line that `stopped` gives for its label, in an unknown one if it is 0, or at a `raise`.
    """
    found: list[Statement] = []
    places: dict[str, str] = {}
    for label, source in cells:
        with contextlib.suppress(*PARSE_ERRORS):
            statements = _statements(label, source)
            last = min([s.start for s in statements if stops.is_stop(s.node)], default=0)
            last = stopped.get(label) or last
            have = [s for s in statements if not last or s.start <= last]
            possible = [s for s in have[:-1] if stops.may_stop(s.node)] if stopped.get(label) == 0 else []
            if have != statements or possible:
                places[label] = f"{label} (line {last})" if last else label
            found += [replace(s, binds={*s.binds, effects.ALL}) if s in possible else s for s in have]
    if not places:
        return [], []
    statements = _without_stubs(found, names, [])
    chosen = _closure(statements, set(names), names, wider=True)
    kept: dict[str, set[int]] = {}
    for s in (s for s in statements if id(s) in chosen):
        kept.setdefault(s.label, set()).update(range(s.start, s.end + 1))
    pieces = []
    for label, source in cells:
        if label in kept:
            lines = [line if n in kept[label] else "" for n, line in enumerate(lines_of(source), start=1)]
            pieces.append((f"{label}:{min(kept[label])}", "\n".join(lines) + "\n"))
    return pieces, list(places.values())


def _misnamed(statements: list[Statement], missed: list[str], names: list[str]) -> list[str]:
    """Return a note for each missing function if there is one with a similar name, which no other code uses."""
    bound = {name for statement in statements for name in statement.binds}
    if effects.ALL in bound or any(map(_anything, statements)):  # such as `import *`, `exec(text)`
        return []
    functions = {s.node.name: s for s in statements if isinstance(s.node, ast.FunctionDef | ast.ClassDef)}
    used = {name for s in statements for name in s.uses if functions.get(name) is not s}
    mine = functions.keys() - used - set(names)
    near = {name: difflib.get_close_matches(name, mine, n=1) for name in missed if name not in bound}
    return [f"`{name}` is not defined: found `{found[0]}`: rename it?" for name, found in near.items() if found]


def defined_names(cells: list[tuple[str, str]]) -> set[str]:
    """Return the names that the cells bind at top level."""
    found: set[str] = set()
    for label, source in cells:
        try:
            found.update(*(statement.binds for statement in _statements(label, source)))
        except PARSE_ERRORS:
            continue
    return found


def places(cells: list[tuple[str, str]], names: set[str]) -> dict[str, list[str]]:
    """Return the labels of the statements that bind each of `names`, as `needed` writes them, in order; of a cell that
    does not compile its own label. Statements that may bind any name, as `import *`, are under `effects.ALL`."""
    found: dict[str, list[str]] = {}
    for label, source in cells:
        try:
            binding = [(f"{s.label}:{s.start}", s.binds | _anything(s)) for s in _statements(label, source)]
        except PARSE_ERRORS:
            binding = [(label, {*DEFINED.findall(source)})]
        for where, binds in binding:
            for name in binds & {*names, effects.ALL}:
                found.setdefault(name, []).append(where)
    return found


def _anything(statement: Statement) -> set[str]:
    return {effects.ALL} if reading.binds_any(statement.facts) else set()


@lru_cache(maxsize=256)  # the self-check asks about the same cells a thousand times
def _statements(label: str, source: str) -> list[Statement]:
    """Return the top-level statements of a cell; do not change them."""
    nodes, lines = parse(source).body, lines_of(source)
    found: list[Statement] = []
    begins = [min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) for node in nodes]
    for node, start, after in zip(nodes, begins, [*begins[1:], None], strict=False):
        end = _last_line(node, lines)
        goes_on = end != node.end_lineno or after == end
        shared = goes_on or (found and found[-1].end >= start)  # like `a = 1; b = 2`
        text = ast.unparse(node) if shared else "\n".join(lines[start - 1 : end])
        facts = facts_of(node)
        found.append(Statement(label, start, end, node, *_names(node, text, facts), facts))
    for before, this in pairwise(found):  # what shares a line runs together, once
        this.start = before.start if before.end >= this.start else this.start
    for after, this in pairwise(reversed(found)):
        this.end = after.end if after.start == this.start else this.end
    return found


def _last_line(node: ast.stmt, lines: list[str]) -> int:
    """Return the last line of a statement, with the lines to which a backslash behind it leads: `a = 1; \\`."""
    end = node.end_lineno or node.lineno
    rest = lines[end - 1].encode()[node.end_col_offset or 0 :].decode()
    while "#" not in rest and rest.rstrip().endswith("\\") and end < len(lines):
        end += 1
        rest = lines[end - 1] if lines[end - 1].strip() == "\\" else ""
    return end


def _names(node: ast.stmt, text: str, facts: Facts) -> tuple[set[str], set[str]]:
    """Return the global names that a statement binds and uses, including inside its functions."""
    if _always_runs(node):
        return {effects.ALL}, _expanded(node)
    table = symtable.symtable(text, "<cell>", "exec")
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    for inner in _descendants(table):
        for symbol in inner.get_symbols():
            if symbol.is_global():
                uses.add(symbol.get_name())
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):  # `:=` escapes comprehensions
        binds |= {part.target.id for part in walked(node) if isinstance(part, ast.NamedExpr)}
    uses |= facts.stores  # `v *= 2` needs v
    if reading.is_setting(node):
        binds.add(effects.ALL)
    return binds, uses | reading.surroundings(node)


def _always_runs(node: ast.stmt) -> bool:
    """Whether a statement may affect all others: `import *`, `from __future__`, `%env`, `%%writefile`."""
    if isinstance(node, ast.ImportFrom):
        return node.names[0].name == "*" or node.module == "__future__"
    return _is_of_ipython(node) and ast.unparse(node).startswith(magics.ALWAYS)


def _is_of_ipython(node: ast.stmt) -> bool:
    """Whether a statement is a call like `get_ipython().system('ls')`."""
    return isinstance(node, ast.Expr) and root_of(node.value) == "get_ipython"


def _expanded(node: ast.stmt) -> set[str]:
    """Return the names and files that `%cd {x}` or `%env A=$x` need."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return set()
    call = ast.unparse(node.value)
    lines = [str(getattr(part, "value", "")) for part in node.value.args[: 2 if "setenv(" in call else 1]]
    words = {word for line in lines if "$" in line or "{" in line for word in reading.WORD.findall(line)}
    return words | ({effects.FILES} if "chdir(" in call else set())


def _is_left_out(node: ast.stmt) -> bool:
    """Whether a statement is an experiment: `with when_solved():`, or a magic that grading ignores."""
    if isinstance(node, ast.With):
        return any(ast.unparse(item.context_expr).startswith("when_solved(") for item in node.items)
    return _is_of_ipython(node) and magics.is_quiet(node)


def _is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is only a docstring and `raise NotImplementedError`."""
    rest = [node for node in function.body if not isinstance(node, ast.Expr)]
    return len(rest) == 1 and isinstance(rest[0], ast.Raise) and "NotImplementedError" in ast.dump(rest[0])


def _descendants(table):
    for child in table.get_children():
        yield child
        yield from _descendants(child)


def _without_stubs(statements: list[Statement], names: list[str], notes: list[str]) -> list[Statement]:
    """Drop stubs of functions that are defined elsewhere with fewer; note which of several definitions counts."""
    dropped = set()
    for name in names:
        binding = [s for s in statements if name in s.binds]
        defining = [s for s in binding if not isinstance(s.node, ast.Delete)]
        if binding and binding[-1] not in defining:
            notes.append(f"`{name}` is deleted in {binding[-1].label}, so it cannot be called: leave `del` out there")
        least = min((s.stubs for s in defining), default=0)
        dropped |= {id(s) for s in defining if s.stubs > least}
        written = [s for s in defining if s.stubs == least]
        if len(written) > 1 and not least:
            notes.append(f"`{name}` is defined {len(written)} times; the last one, in {written[-1].label}, counts")
    return [s for s in statements if id(s) not in dropped]


def _closure(statements: list[Statement], wanted: set[str], asked: list[str], wider: bool) -> set[int]:
    """Return the ids of the statements that bind or change a wanted name, or a name used by those, transitively."""
    bound = {name for statement in statements for name in statement.binds}
    notebook = effects.NotebookNames([s.node for s in statements], [s.facts for s in statements], asked, bound)
    concerns = notebook.mentions if wider else notebook.changes
    sets = setups.Setups([s.node for s in statements], notebook, wider)
    told = {id(s): sets.changes(s.node) for s in statements}
    touches = [s.binds if _is_left_out(s.node) else s.binds | concerns(s.facts) | told[id(s)] for s in statements]
    if wider:
        touches = [
            {effects.ALL} if _is_of_ipython(s.node) and ast.unparse(s.node).startswith(magics.REMOVES) else touched
            for s, touched in zip(statements, touches, strict=True)
        ]
    left = {id(s): t & effects.HIDDEN.keys() for s, t in zip(statements, touches, strict=True)} if wider else {}
    of_name: dict[str, list[Statement]] = {}
    for statement, touched in zip(statements, touches, strict=True):
        for name in touched:
            of_name.setdefault(name, []).append(statement)
    chosen, todo = set(), {*wanted, effects.ALL}
    seen: set[str] = set()
    words: set[str] | None = None  # in the text of the chosen statements, if one of them runs text
    while todo:
        name = todo.pop()
        seen.add(name)
        if name == reading.TEXT:
            words = set().union(*(reading.words(s.node) for s in statements if id(s) in chosen))
            todo |= words & bound - seen
        for statement in of_name.get(name, ()):
            if id(statement) in chosen:
                continue
            own = statement.binds | statement.facts.told | told[id(statement)]
            if isinstance(statement.node, ast.Expr) and name in wanted - own:
                continue  # a call of an answer is not part of it
            chosen.add(id(statement))
            todo |= (statement.uses | left.get(id(statement), set())) - seen
            if words is not None:
                todo |= reading.words(statement.node) & bound - seen
    return chosen


def _reason(error: BaseException, source: str) -> str:
    if CONFLICT.search(source):
        return "it has the marks of a merge conflict; keep one of the two versions"
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})" if error.lineno else error.msg
    return "it is nested too deep" if isinstance(error, RecursionError | MemoryError) else str(error)[:100]
