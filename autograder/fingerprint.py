"""What stays of a student's code when names, comments, docstrings and layout are taken away, as a hash.

Equal hashes are a reason for a person to look, no more. A short function, which has few ways to be written, has none.
"""

import ast
import builtins
import hashlib

SHORT = 60  # nodes of the syntax tree; a loop of three or four lines has more

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def of(cells: list[tuple[str, str]], functions: tuple[str, ...]) -> str:
    """The fingerprint of the definitions of `functions` in (label, source) cells; "" where they are short or broken."""
    try:
        found = [node for _, source in cells for node in ast.parse(source).body if _defines(node, functions)]
        found.sort(key=lambda node: functions.index(node.name))
        trees = [_Plain().visit(node) for node in found]
        size = sum(1 for tree in trees for _ in ast.walk(tree))
        text = "\n".join(ast.dump(tree) for tree in trees)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if size > SHORT else ""


def _defines(node: ast.stmt, functions: tuple[str, ...]) -> bool:
    return isinstance(node, _DEFINITIONS) and node.name in functions


class _Plain(ast.NodeTransformer):
    """Numbers names, but for builtins, in the order of their first use, and drops docstrings and annotations."""

    def __init__(self):
        self.numbers: dict[str, str] = {}

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _DEFINITIONS):
            node.name = self.number(node.name)
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.arg, node.annotation = self.number(node.arg), None
        if isinstance(node, ast.Name):
            node.id = self.number(node.id)
        return self.generic_visit(node)

    def number(self, name: str) -> str:
        return name if hasattr(builtins, name) else self.numbers.setdefault(name, f"_{len(self.numbers)}")
