"""Python's own view of a piece of code: its syntax tree, and its lines."""

import ast
import re
from functools import lru_cache

LINE_END = re.compile(r"\r\n?|\n")
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@lru_cache(maxsize=256)
def parse(source: str) -> ast.Module:
    """Return the syntax tree of a piece of code. Nobody changes it: it is asked for several times."""
    return ast.parse(source)


def is_python(source: str) -> bool:
    try:
        parse(source)
    except PARSE_ERRORS:
        return False
    return True


def lines_of(source: str) -> list[str]:
    """Return the lines as Python counts them; `str.splitlines` also ends one at a form feed or a Unicode separator."""
    return LINE_END.split(source)
