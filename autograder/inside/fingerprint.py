"""What stays of a student's code when names, comments, docstrings and layout are taken away, as a hash.

Equal hashes are a reason for a person to look, no more. A short function, which has few ways to be written, has none.
"""

import ast
import builtins
import hashlib
from typing import Any

from .source import PARSE_ERRORS, parse

SHORT = 60  # nodes of the syntax tree; a loop of three or four lines has more

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMED = {**dict.fromkeys(_DEFINITIONS, "name"), ast.arg: "arg", ast.Name: "id"}
_LEFT_OUT = {ast.FunctionDef: "returns", ast.AsyncFunctionDef: "returns", ast.arg: "annotation"}


def of(cells: list[tuple[str, str]], functions: tuple[str, ...]) -> str:
    """The fingerprint of the definitions of `functions` in (label, source) cells; "" where they are short or broken."""
    try:
        nodes = (node for _, source in cells for node in parse(source).body)
        found = [node for node in nodes if isinstance(node, _DEFINITIONS) and node.name in functions]
        found.sort(key=lambda node: functions.index(node.name))
        plain = [_Plain(node) for node in found]
    except PARSE_ERRORS:
        return ""
    text = "\n".join(" ".join(each.parts) for each in plain)
    long = sum(each.nodes for each in plain) > SHORT
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if long else ""


class _Plain:
    """A definition's tree as text: names, but for builtins, are numbered in the order of their first use, docstrings
    and annotations are left out."""

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
            value: Any = getattr(node, field, None)
            if _NAMED.get(kind) == field:
                value = self.number(value)
            elif (
                field == "body" and isinstance(node, _DEFINITIONS) and ast.get_docstring(node, clean=False) is not None
            ):
                value = value[1:]
            self.add(None if _LEFT_OUT.get(kind) == field else value)

    def number(self, name: str) -> str:
        return name if hasattr(builtins, name) else self.numbers.setdefault(name, f"_{len(self.numbers)}")
