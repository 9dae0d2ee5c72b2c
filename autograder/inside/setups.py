"""Find the statements that set an answer up through a helper or another name, like `configure(answer, -1)`.

They may give the function an attribute, other defaults or another closure, so they run. What is given to a call may be
changed by it if the call is
- `setattr` or `functools.update_wrapper`, or of a module that the student wrote;
- of a notebook function, lambda or method that stores into this argument or passes it to such a call;
- of something made from such a function: a partial, a table's entry, `map(configure, answers)`.

A call that only runs the answer (an experiment, a plot, a check) changes nothing. In a second look, calls of unknown
functions count, too.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .effects import NotebookNames
from .facts import executed, root_of
from .known_calls import ARRAYS, PURE, QUIET, READS, SLOW
from .reading import module_of
from .syntax import walked

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Names = dict[str, set[str]]  # what a name may refer to
CHANGERS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__", "update_wrapper"})
PARTS = (
    ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.Attribute | ast.Subscript | ast.Call
    | ast.For | ast.AsyncFor | ast.comprehension | ast.withitem | ast.Return | ast.Yield
)  # fmt: skip
# Calls whose result holds what they are given.
HOLDERS = frozenset(
    """
    chain cycle deque dict enumerate filter get getattr items iter list next partial repeat reversed set sorted tuple
    values vars zip
    """.split()  # noqa: SIM905
)


@dataclass
class Helper:
    """A function, and the parameters and answers that it may change or return."""

    node: Function
    positional: list[str]
    names: Names  # at its start: its parameters, and those of the functions inside it
    parts: list[ast.AST]
    changed: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, node: Function) -> "Helper":
        """Return the helper that a function is, before anything is known of it."""
        positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        own = {part.arg for part in walked(node) if isinstance(part, ast.arg)}
        if positional[:1] in (["self"], ["cls"]):
            del positional[0]
        return cls(node, positional, {name: {name} for name in own - {"self", "cls"}}, _parts(walked(node)))

    def given(self, call: ast.Call, names: set[str], held: "Setups", at: Names) -> set[str]:
        """Return what the arguments for the parameters `names` hold; parameters of inner functions get them all."""
        found: set[str] = set()
        exact = not any(isinstance(argument, ast.Starred) for argument in call.args)
        for place, argument in enumerate(call.args):
            if not exact or place >= len(self.positional) or self.positional[place] in names:
                found |= held.holds(argument, at) if names else set()
        for keyword in call.keywords:
            known = {*self.positional, *(argument.arg for argument in self.node.args.kwonlyargs)}
            if keyword.arg in names or (keyword.arg not in known and names):
                found |= held.holds(keyword.value, at)
        return found


class Setups:
    """The functions of a notebook that may change what they are given."""

    def __init__(self, nodes: list[ast.stmt], notebook: NotebookNames, wider: bool = False):
        self.asked, self.imports, self.wider = notebook.asked, notebook.imports, wider
        parts = [part for node in nodes for part in walked(node)]
        self.classes = {part.name for part in parts if isinstance(part, ast.ClassDef)}
        self.helpers: dict[str, list[Helper]] = {}
        for part in parts:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name not in self.asked:
                self.helpers.setdefault(part.name, []).append(Helper.of(part))
        self.lambdas = {id(part): Helper.of(part) for part in parts if isinstance(part, ast.Lambda)}
        self.kept = {  # attributes that keep a parameter: `self.f = f`
            target.attr
            for helper in self._all()
            for part in helper.parts
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Name) and part.value.id in helper.names
            for target in part.targets
            if isinstance(target, ast.Attribute) and root_of(target) == "self"
        }
        self.loose: set[str] = set()  # names of what is made from functions that change something
        self.names: Names = {name: {name} for name in self.asked}
        top = _parts(part for node in nodes for part in executed(node))
        for _ in range(3):  # indirectly, through each other
            self._look(top)

    def changes(self, node: ast.stmt) -> set[str]:
        """Return the answers that a statement may change."""
        return self._changes(_parts(executed(node)), self.names) & self.asked

    def _all(self) -> Iterator[Helper]:
        yield from self.lambdas.values()
        for helpers in self.helpers.values():
            yield from helpers

    def _look(self, top: list[ast.AST]) -> None:
        """Learn once more what names and functions do; `top` is run by the notebook's statements."""
        self._alias(top, self.names)
        for part in top:
            if isinstance(part, ast.Assign) and self._makes_changer(part.value):
                self.loose |= {target.id for target in part.targets if isinstance(target, ast.Name)}
        for helper in self._all():
            names = {**self.names, **helper.names}
            self._alias(helper.parts, names)
            helper.changed = self._changes(helper.parts, names)
            values = [part.value for part in helper.parts if isinstance(part, ast.Return | ast.Yield) and part.value]
            helper.returned = set().union(*(self.holds(value, names) for value in values))

    def _alias(self, parts: list[ast.AST], names: Names) -> None:
        """Add to `names` what assigned names may refer to."""
        pairs = [pair for part in parts for pair in _bindings(part)]
        for _ in range(2):
            for targets, value in pairs:
                if held := self.holds(value, names):
                    for name in {root_of(inner) for target in targets for inner in walked(target)} - {"", "self"}:
                        names[name] = names.get(name, set()) | held

    def holds(self, node: ast.AST | None, names: Names) -> set[str]:
        """Return the parameters and answers that an expression's value may hold."""
        if isinstance(node, ast.Name):
            return names.get(node.id, set())
        if isinstance(node, ast.Attribute) and root_of(node) == "self":
            return {f"self.{node.attr}"} & {f"self.{name}" for name in self.kept}
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Await | ast.NamedExpr):
            return self.holds(node.value, names)
        if isinstance(node, ast.Call):
            return self._result(node, names)
        return set().union(*(self.holds(each, names) for each in _held_by(node)))

    def _result(self, call: ast.Call, names: Names) -> set[str]:
        name = _called(call)
        if name in HOLDERS or name in self.classes:
            return self.holds(getattr(call.func, "value", None), names) | self._arguments(call, names)
        helpers = self.helpers.get(name, [])
        return set().union(*(helper.given(call, helper.returned, self, names) for helper in helpers))

    def _arguments(self, call: ast.Call, names: Names) -> set[str]:
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        return set().union(*(self.holds(value, names) for value in values))

    def _changes(self, parts: list[ast.AST], names: Names) -> set[str]:
        """Return what a piece of code may change."""
        found: set[str] = set()
        for part in parts:
            if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
                found |= self.holds(part.value, names)
            elif isinstance(part, ast.AugAssign):
                found |= self.holds(part.target, names)
            elif isinstance(part, ast.Call):
                found |= self._changed_by(part, names)
        return found

    def _changed_by(self, call: ast.Call, names: Names) -> set[str]:
        """Return what a call may change."""
        root, name = root_of(call.func), _called(call)
        module, arguments = self.imports.get(root, ""), self._arguments(call, names)
        if module.startswith(SLOW):
            return set()
        found: set[str] = set()
        helpers = self._helpers(call) if not module else []
        for helper in helpers:
            found |= (helper.changed & self.asked) | helper.given(call, helper.changed & {*helper.names}, self, names)
            found |= arguments if not isinstance(call.func, ast.Name | ast.Attribute) and helper.changed else set()
        owner = self.holds(call.func.value, names) if isinstance(call.func, ast.Attribute) else set()
        keeps = any(changed.startswith("self.") for helper in helpers for changed in helper.changed)
        if owner and (keeps or (not helpers and name not in READS | HOLDERS)):
            found |= owner
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        passes_on = name not in HOLDERS and any(map(self._makes_changer, given))
        own = module and module_of(module)
        if name in CHANGERS or {root, name} & self.loose or passes_on or own or (self.wider and self._unknown(call)):
            found |= arguments
        return found

    def _helpers(self, call: ast.Call) -> list[Helper]:
        """Return the notebook functions that a call may call."""
        if isinstance(call.func, ast.Lambda):
            return [self.lambdas[id(call.func)]]
        name = _called(call)
        return [*self.helpers.get(name, ()), *(self.helpers.get("__init__", ()) if name in self.classes else ())]

    def _makes_changer(self, node: ast.AST) -> bool:
        """Whether an expression's value may be, or contain, a function that changes something."""
        if isinstance(node, ast.Lambda):
            return bool(self.lambdas[id(node)].changed)
        if isinstance(node, ast.Name):
            known = any(helper.changed for helper in self.helpers.get(node.id, ()))
            return known or node.id in self.loose or node.id in CHANGERS
        if isinstance(node, ast.Call):
            own = isinstance(node.func, ast.Name) and node.func.id in self.helpers and self._makes_changer(node.func)
            return own or (_called(node) in HOLDERS and any(map(self._makes_changer, node.args)))
        return isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.Attribute | ast.Subscript) and any(
            map(self._makes_changer, ast.iter_child_nodes(node))
        )

    def _unknown(self, call: ast.Call) -> bool:
        """Whether nothing says what a call does with its arguments."""
        root = root_of(call.func)
        module = self.imports.get(root, root if root in PURE else "")
        is_known = module in PURE or module.split(".")[0] in ARRAYS or module.startswith(tuple(QUIET))
        return not (is_known or root in self.asked or self._helpers(call))


def _parts(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """Return the nodes that bind, change, call or return something."""
    loads = ast.Attribute | ast.Subscript
    return [n for n in nodes if isinstance(n, PARTS) and not (isinstance(n, loads) and isinstance(n.ctx, ast.Load))]


def _called(call: ast.Call) -> str:
    """Return the last name of what is called; the first one of a call's result and of a table's entry."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else root_of(func)


def _bindings(part: ast.AST) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """Yield the targets that a node binds, with their value."""
    if isinstance(part, ast.Assign):
        yield part.targets, part.value
    elif isinstance(part, ast.NamedExpr | ast.AnnAssign) and part.value:
        yield [part.target], part.value
    elif isinstance(part, ast.For | ast.AsyncFor | ast.comprehension):
        yield [part.target], part.iter
    elif isinstance(part, ast.withitem) and part.optional_vars:
        yield [part.optional_vars], part.context_expr


def _held_by(node: ast.AST | None) -> list[ast.AST | None]:
    """Return the expressions whose values a container, or a choice between values, holds."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [*node.elts]
    if isinstance(node, ast.Dict):
        return [*node.keys, *node.values]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return [*node.values]
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [node.elt]
    return [node.value] if isinstance(node, ast.DictComp) else []
