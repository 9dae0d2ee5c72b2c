"""The names in hpcdl that stay open to each exercise's answers: the ones its reference solution and helper cells use.

    autograder/exercises/SLUG/allowed.json    {"hierarchical_all_reduce": ["hpcdl.collectives.reduce.reduce", ...], ...}

The build writes it from the lab's source, which a wheel does not have. Names are the objects' names in their defining
modules; a class includes its methods and its bases' methods, an object means its class.
"""

import ast
import importlib
import json
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

from autograder import exercises
from autograder.authoring import Lab
from autograder.inside import magics, source
from autograder.inside.library import GIVEN, is_below, name_of

FOLDER = Path(exercises.__file__).parent


def path(slug: str) -> Path:
    return FOLDER / slug / "allowed.json"


def text(lab: Lab, solved: list[str]) -> str:
    """Return the file's content, from the code cells of the lab with its solutions."""
    return json.dumps(allowed(lab, solved), indent=2) + "\n"


def allowed(lab: Lab, solved: list[str]) -> dict[str, list[str]]:
    """Return, by exercise, the names in hpcdl that the reference's statements use, without GIVEN ones."""
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(solved)]
    found = {}
    for name, exercise in lab.exercises.items():
        statements, _ = source.needed(cells, list(exercise.functions))
        found[name] = sorted(used("\n".join(code for _, code in statements), exercise.functions))
    return {name: names for name, names in found.items() if names}


def used(program: str, wanted: Iterable[str] = ()) -> set[str]:
    """Return the names of hpcdl's functions, classes and modules that a program uses, or imports as a `wanted` name."""
    tree = ast.parse(program)
    imported = dict(_imports(tree))
    meant = {*_meant(tree, imported), *(imported[name] for name in wanted if name in imported)}
    meant = {dotted for dotted in meant if is_below(dotted, "hpcdl")}
    names = {name for dotted in meant for name in homes(dotted)}
    return {name for name in names if is_below(name, "hpcdl") and not is_below(name, *GIVEN)}


def homes(dotted: str) -> list[str]:
    """Return the defining name of the object at a dotted name: a function, a module, or a class and its bases."""
    found = _resolve(dotted)
    if isinstance(found, types.ModuleType):
        return [found.__name__]
    if isinstance(found, types.FunctionType):
        return [name_of(found)]
    return [name_of(kind) for kind in (found if isinstance(found, type) else type(found)).__mro__]


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return the names that imports bind, and what they refer to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.asname, a.name) if a.asname else (a.name.partition(".")[0],) * 2 for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)


def _meant(tree: ast.Module, imported: dict[str, str]) -> Iterator[str]:
    """Return the dotted names that a program's names and attributes refer to."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            root, _, rest = ast.unparse(node).partition(".")
            if root in imported and rest.replace(".", "").isidentifier() | (not rest):
                yield f"{imported[root]}.{rest}".rstrip(".")


def _resolve(dotted: str):
    """Return the object at a dotted name, or the last existing one on the path: the rest are attributes of an
    object."""
    first, *rest = dotted.split(".")
    found = importlib.import_module(first)
    for name in rest:
        if isinstance(found, types.ModuleType) and not hasattr(found, name):
            importlib.import_module(f"{found.__name__}.{name}")
        if not isinstance(found, types.ModuleType):
            return found
        found = getattr(found, name)
    return found
