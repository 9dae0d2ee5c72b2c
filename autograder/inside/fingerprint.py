"""Hashes of a student's code, whole and in parts, without names, comments, docstrings and layout.

Equal hashes are a reason for a person to look, no more. `shapes` are hashes of all parts, from an expression to the
whole function: code that was reordered or changed in one place keeps most of them (Baxter et al. 1998, "Clone detection
using abstract syntax trees"). A short function, which can be written in only a few ways, has neither.
"""

import ast
import builtins
import hashlib
from typing import Any

from .syntax import PARSE_ERRORS, parse

SHORT = 60  # nodes of the syntax tree; a loop of three or four lines has more
SMALLEST = 6  # nodes of the smallest compared part
MOST = 2000  # stored parts per exercise

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMED = {**dict.fromkeys(_DEFINITIONS, "name"), ast.arg: "arg", ast.Name: "id"}
_LEFT_OUT = {ast.FunctionDef: "returns", ast.AsyncFunctionDef: "returns", ast.arg: "annotation"}


def of(cells: list[tuple[str, str]], functions: tuple[str, ...]) -> str:
    """Return the fingerprint of the definitions of `functions` in (label, source) cells; "" if they are short or
    broken."""
    try:
        plain = [_Plain(node) for node in _definitions(cells, functions)]
    except PARSE_ERRORS:
        return ""
    text = "\n".join(" ".join(each.parts) for each in plain)
    long = sum(each.nodes for each in plain) > SHORT
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if long else ""


def shapes(cells: list[tuple[str, str]], functions: tuple[str, ...]) -> list[str]:
    """Return hashes of the parts of the definitions of `functions`, without names, with repetitions; [] if they are
    short or broken."""
    try:
        return shapes_of(_definitions(cells, functions))
    except PARSE_ERRORS:
        return []


def shapes_of(definitions: list) -> list[str]:
    """Return hashes of the parts of syntax trees."""
    found: list[str] = []
    nodes = sum(_shape(node, found)[1] for node in definitions)
    return sorted(found)[:MOST] if nodes > SHORT else []


def _definitions(cells: list[tuple[str, str]], functions: tuple[str, ...]) -> list:
    """Return the definitions of `functions`, in that order."""
    nodes = (node for _, source in cells for node in parse(source).body)
    found = [node for node in nodes if isinstance(node, _DEFINITIONS) and node.name in functions]
    return sorted(found, key=lambda node: functions.index(node.name))


def _shape(node: ast.AST, found: list[str]) -> tuple[str, int]:
    """Return a hash of the tree under `node` without names, and its number of nodes; add its parts' hashes to
    `found`."""
    parts, nodes = [type(node).__name__], 1
    for field in node._fields:
        value = _without_words(node, field)
        for item in value if isinstance(value, list) else [value]:
            part, size = _shape(item, found) if isinstance(item, ast.AST) else (repr(item), 0)
            parts.append(part)
            nodes += size
    digest = hashlib.blake2b("|".join(parts).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    if nodes >= SMALLEST:
        found.append(digest)
    return digest, nodes


def _without_words(node: ast.AST, field: str):
    """Return a field's value, with None for names and annotations, and bodies without docstrings."""
    value: Any = getattr(node, field, None)
    if _NAMED.get(type(node)) == field:
        return value if hasattr(builtins, value) else None
    if field == "body" and isinstance(node, _DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
        return value[1:]
    return None if _LEFT_OUT.get(type(node)) == field else value


class _Plain:
    """A definition's tree as text: names, except builtins, are numbered in the order of first use; docstrings and
    annotations are removed."""

    def __init__(self, node: ast.stmt):
        self.numbers: dict[str, str] = {}
        self.parts: list[str] = []
        self.nodes = 0
        self.add(node)

    def add(self, value) -> None:
        if isinstance(value, ast.AST):
            self.add_node(value)
        elif type(value) is list:
            self.parts.append("[")
            for item in value:
                self.add(item)
            self.parts.append("]")
        else:
            self.parts.append(repr(value))

    def add_node(self, node: ast.AST) -> None:
        kind = type(node)
        self.nodes += 1
        self.parts.append(kind.__name__)
        for field in node._fields:
            self.add(self.number(getattr(node, field)) if _NAMED.get(kind) == field else _without_words(node, field))

    def number(self, name: str) -> str:
        return name if hasattr(builtins, name) else self.numbers.setdefault(name, f"_{len(self.numbers)}")
