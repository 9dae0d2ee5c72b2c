"""Python's own view of a piece of code: its syntax tree, and its lines."""

import ast
import re
from functools import lru_cache

LINE_END = re.compile(r"\r\n?|\n")
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@lru_cache(maxsize=256)
def parse(source: str) -> ast.Module:
    """Return the syntax tree of a piece of code. Do not change it: it is cached."""
    return ast.parse(source)


def is_python(source: str) -> bool:
    try:
        parse(source)
    except PARSE_ERRORS:
        return False
    return True


def lines_of(source: str) -> list[str]:
    """Return the lines as Python counts them; `str.splitlines` also splits at form feeds and Unicode separators."""
    return LINE_END.split(source)


@lru_cache(maxsize=4096)
def walked(node: ast.AST) -> list[ast.AST]:
    """Return a node and all its descendants, like `ast.walk`. Do not change the list: it is cached."""
    found = [node]
    for each in found:
        found += ast.iter_child_nodes(each)
    return found
