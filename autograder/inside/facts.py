"""Collect what a piece of code does with names: calls, stores, and aliases."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache, singledispatch

from .known_calls import CONTAINERS, READS
from .magics import is_quiet
from .syntax import walked

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FILES = "<files>"  # not a valid Python name: the folder's files
MAPS = frozenset({"from_file", "memmap", "open_memmap"})  # of arrays in a file, which they may create


@dataclass(frozen=True)
class Call:
    """A call: `root.….last(args)`; `root` is empty if the called object has no name."""

    root: str
    last: str
    args: frozenset[str]
    out: bool
    of: str = ""  # the object of a method call: `f` in `f.last(...)`, not in `f().last(...)`
    handed: frozenset[str] = frozenset()  # objects with mutating methods among the arguments: `map(table.append, x)`
    is_opened_to_write: bool = False  # `open(path, "a")`, `np.memmap(path)`, `path.replace(new)`

    @property
    def is_method(self) -> bool:
        return self.last != self.root


@dataclass
class Facts:
    """What a piece of code does with names."""

    stores: set[str] = field(default_factory=set)  # root names in `a[i] = …`, `a.b = …`, `del a[i]`
    calls: list[Call] = field(default_factory=list)
    loads: set[str] = field(default_factory=set)
    aliases: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)  # (new names, their objects)
    outside: set[str] = field(default_factory=set)  # declared `global`
    told: set[str] = field(default_factory=set)  # root names in `a.register(…)`, `a.b.append(…)`, not in `a().add(…)`
    own: set[str] = field(default_factory=set)  # parameters and assigned names
    returns: set[str] = field(default_factory=set)  # root names of what a function returns or yields
    loops: bool = False

    def __or__(self, other: "Facts") -> "Facts":
        """Return the facts of both pieces of code."""
        return Facts(
            self.stores | other.stores,
            self.calls + other.calls,
            self.loads | other.loads,
            self.aliases + other.aliases,
            self.outside | other.outside,
            self.told | other.told,
            self.own | other.own,
            self.returns | other.returns,
            self.loops or other.loops,
        )


def facts_of(node: ast.AST) -> Facts:
    """Return the facts of running the statement `node`; a definition runs its decorators, defaults and class body."""
    facts = Facts()
    for part in executed(node):
        _gather(part, facts)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
        facts.loads.add(node.name)  # the decorator may call it
        facts.own.add(node.name)
    return facts


@lru_cache(maxsize=1024)
def facts_of_body(node: Definition) -> Facts:
    """Return the facts of calling the function, or any method of the class."""
    facts = Facts()
    for part in walked(node):
        _gather(part, facts)
        if isinstance(part, ast.arg):
            facts.own.add(part.arg)
    return facts


@lru_cache(maxsize=1024)
def executed(node: ast.AST) -> list[ast.AST]:
    """Return `node` and its descendants, except the bodies of functions."""
    found, todo = [], [node]
    while todo:
        found.append(part := todo.pop())
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += [part.args, *reversed(part.decorator_list)]
        else:
            todo += reversed(list(ast.iter_child_nodes(part)))
    return found


@singledispatch
def _gather(node: ast.AST, facts: Facts) -> None:
    """Add the facts of one node."""


@_gather.register
def _(node: ast.Name, facts: Facts) -> None:
    (facts.loads if isinstance(node.ctx, ast.Load) else facts.own).add(node.id)
    if isinstance(node.ctx, ast.Del):  # it may run `__del__`
        facts.stores.add(node.id)


@_gather.register
def _(node: ast.Subscript | ast.Attribute, facts: Facts) -> None:
    if not isinstance(node.ctx, ast.Load):
        facts.stores |= {root_of(node)} - {""}
    elif getattr(node, "attr", "") == "user_ns":  # of IPython's shell: the notebook's names
        facts.stores.add("get_ipython")


@_gather.register
def _(node: ast.Global, facts: Facts) -> None:
    facts.outside |= set(node.names)


@_gather.register
def _(node: ast.Call, facts: Facts) -> None:
    facts.calls.append(call := call_of(node))
    if call.is_method and call.last not in READS and not any(isinstance(n, ast.Call) for n in walked(node.func)):
        facts.told |= {call.root} - {""}
    if call.root == "get_ipython" and not is_quiet(node):
        facts.stores.add("get_ipython")


@_gather.register
def _(node: Definition, facts: Facts) -> None:
    for d in (d for d in node.decorator_list if isinstance(d, ast.Attribute | ast.Name)):
        of = root_of(d) if isinstance(d, ast.Attribute) else ""
        facts.calls.append(Call(root_of(d), getattr(d, "attr", root_of(d)), frozenset(), False, of))


@_gather.register
def _(node: ast.Return | ast.Yield | ast.YieldFrom, facts: Facts) -> None:
    if node.value is not None:
        values = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else [node.value]
        facts.returns |= set(map(root_of, values)) - {""}


@_gather.register
def _(node: ast.While, facts: Facts) -> None:
    facts.loops = True


@_gather.register
def _(node: ast.For | ast.AsyncFor | ast.comprehension, facts: Facts) -> None:
    facts.loops |= not isinstance(node, ast.comprehension)
    facts.aliases.append((_names([node.target]), _names([node.iter])))


@_gather.register
def _(node: ast.NamedExpr, facts: Facts) -> None:
    facts.aliases.append((_names([node.target]), _names([node.value])))


@_gather.register
def _(node: ast.Match, facts: Facts) -> None:
    caught = [part for case in node.cases for part in walked(case.pattern)]
    named = {getattr(part, "name", None) or getattr(part, "rest", None) for part in caught} - {None}
    facts.aliases.append((frozenset(map(str, named)), _names([node.subject])))


@_gather.register
def _(node: ast.Assign, facts: Facts) -> None:
    facts.aliases.append((_names(node.targets), _names([node.value]) | _files_in(node.value)))


@_gather.register
def _(node: ast.AugAssign, facts: Facts) -> None:
    if isinstance(node.target, ast.Name):
        facts.stores.add(node.target.id)


@_gather.register
def _(node: ast.Await, facts: Facts) -> None:
    if isinstance(node.value, ast.Name):
        facts.stores.add(node.value.id)


@_gather.register
def _(node: ast.withitem, facts: Facts) -> None:
    if node.optional_vars is not None:
        facts.aliases.append((_names([node.optional_vars]), _names([node.context_expr])))


def _files_in(value: ast.expr) -> set[str]:
    """Return FILES if an expression opens a file to write: whatever changes its object changes the file."""
    calls = (call_of(part) for part in walked(value) if isinstance(part, ast.Call))
    return {FILES} if any(call.is_opened_to_write for call in calls) else set()


@lru_cache(maxsize=4096)
def call_of(node: ast.Call) -> Call:
    """Return the `Call` of a call node."""
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    out = any(keyword.arg == "out" for keyword in node.keywords)
    if last in ("run_line_magic", "magic") and not is_quiet(node):
        last = "run_cell"
    handed: list[ast.expr] = [
        v for v in values if isinstance(v, ast.Attribute) and (v.attr in CONTAINERS or v.attr.endswith("_"))
    ]
    handed += [keyword.value for keyword in node.keywords if keyword.arg == "file"]  # of `print`
    owner, root = getattr(node.func, "value", None), root_of(node.func)
    hidden = _names([owner]) if owner and not root and last not in READS else frozenset()  # `(a + b).backward()`
    of = owner.id if isinstance(owner, ast.Name) else ""
    modes = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    writes = last == "open" and any(set("wax+") & set(mode) and set(mode) <= set("rwaxbt+") for mode in modes)
    writes |= last in MAPS and not {"r", "c"} & {*modes}
    writes |= last == "replace" and len(node.args) == 1  # a path's, not a text's
    return Call(root, last, _names(values), out, of, hidden.union(map(root_of, handed)), writes)


def _names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(inner.id for node in nodes for inner in walked(node) if isinstance(inner, ast.Name))


def root_of(node: ast.AST) -> str:
    """Return the first name in `a.b[c].d` or `a.b().c`; empty if it begins with something else."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
