"""Read what one statement, or one definition, does with names, files and modules, whatever they stand for."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import lru_cache

from .facts import FILES, Call, Definition, Facts, call_of, facts_of_body
from .known_calls import ANYTHING, ARGUMENTS, BARE, CONTAINERS, OPENS, READABLE, READS, RUNS_TEXT, SPACES
from .syntax import walked

TEXT = "<text>"  # not a valid Python name: code in the text of the statements
WORD = re.compile(r"[^\W\d]\w*")


@lru_cache(maxsize=1024)
def module_of(imported: str) -> str:
    """Return the imported module if it is the student's own, which may have state; otherwise ""."""
    top = imported.partition(".")[0]
    try:
        return "" if importlib.util.find_spec(top) else top
    except (ValueError, ImportError):
        return ""


def is_shared(node: ast.ClassDef) -> bool:
    """Whether objects of the class may change class state: a table, a count, a registry."""
    if node.decorator_list or node.keywords:
        return True
    tables = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign) and part.value]
    body = facts_of_body(node)
    touched = body.stores | {call.root for call in body.calls if call.is_method and call.last not in READS}
    is_own = bool(touched & {node.name, "cls", "type", "__class__"})
    return is_own or any(not isinstance(part.value, ast.Constant) for part in tables)


def remembers(node: Definition) -> set[str]:
    """Return the function's name if a default argument is an object, which may store arguments."""
    arguments = getattr(node, "args", None)
    defaults = [*arguments.defaults, *filter(None, arguments.kw_defaults)] if arguments else []
    return {node.name} if any(isinstance(d, ast.List | ast.Dict | ast.Set | ast.Call) for d in defaults) else set()


def is_setting(node: ast.AST) -> bool:
    """Whether a statement stores into a call's result, which may concern all others."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    places = [target.value for target in targets if isinstance(target, ast.Attribute | ast.Subscript)]
    return any(isinstance(part, ast.Call) for place in places for part in walked(place))  # `getcontext().prec = 9`


def surroundings(node: ast.AST) -> set[str]:
    """Return what a statement uses besides names: files that it reads, the path of a student's own modules, text."""
    made = [call_of(part) for part in walked(node) if isinstance(part, ast.Call)]
    calls = {call.last for call in made}
    text = {TEXT} if any(_is(call, RUNS_TEXT) for call in made) else set()
    text |= {"sys"} if calls & ARGUMENTS else set()
    imports_own = any(module_of(whole) for _, whole in imports_of(node))
    return text | ({FILES, "sys"} if imports_own else {FILES} if calls & OPENS else set())


def words(node: ast.AST) -> set[str]:
    """Return the words in a statement's text, except docstrings: names that it uses where it is run as code."""
    docs = {id(part.value) for part in walked(node) if isinstance(part, ast.Expr)}
    texts = [part.value for part in walked(node) if isinstance(part, ast.Constant) and id(part) not in docs]
    return {word for text in texts if isinstance(text, str) for word in WORD.findall(text)}


def _is(call: Call, names: frozenset[str]) -> bool:
    return call.last in names and not (call.is_method and call.last in BARE)


def binds_any(facts: Facts) -> bool:
    """Whether a piece of code may bind any global name: `exec(text)`, `globals()[name] = value`, `__main__.x = 1`."""
    if facts.stores & (SPACES | {"globals"}):
        return True
    changed = {call.root for call in facts.calls if call.last in CONTAINERS}  # `globals().update(...)`
    here = any(call.root == "setattr" and call.args & {"__name__", "__main__"} for call in facts.calls)
    return here or "globals" in changed or any(_is(call, ANYTHING - READABLE) for call in facts.calls)


def attributes_set(node: ast.AST) -> list[ast.expr]:
    return [t for t in node.targets if isinstance(t, ast.Attribute)] if isinstance(node, ast.Assign) else []


def imports_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with its module."""
    for inner in walked(node) if not isinstance(node, Definition) else ():
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                yield alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(inner, ast.ImportFrom):
            for alias in inner.names:
                yield alias.asname or alias.name, f"{inner.module or ''}.{alias.name}"
