"""Name an element of a value: `path[0, 1]` where the value's name is an expression, else "element [0, 1] of ..."."""

import ast
from collections.abc import Sequence

import torch

INDEXED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)  # an index may follow these without a bracket around them


def element(name: str, index: str) -> str:
    """Return the name of the element at `index`, as Python writes it; `name` itself if there is no index.

    >>> element("p = 2: path", "[1, 0]")
    'p = 2: path[1, 0]'
    >>> element("p = 2: the sums", "[3]")
    'p = 2: element [3] of the sums'
    """
    if not index:
        return name
    before, value = _split(name)
    if _takes_an_index(value):
        return f"{name}{index}"
    return f"{before}{'element' if before else 'Element'} {index} of {value}"


def items(count: int, noun: str = "item") -> str:
    """Return `1 item` or `3 items`, for any noun with a plural in s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def first_index(mask: torch.Tensor) -> tuple[int, ...]:
    """Return the index of the first True of a mask."""
    return index_of(int(mask.reshape(-1).to(torch.uint8).argmax()), mask.shape)


def index_of(flat: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the index of element number `flat` of a tensor with these sizes."""
    index = []
    for size in reversed(sizes):
        flat, i = divmod(flat, size)
        index.append(i)
    return tuple(reversed(index))


def at(index: tuple[int, ...]) -> str:
    """Return an index as Python writes it, `[0, 1]`; nothing for a single number."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def _split(name: str) -> tuple[str, str]:
    """Split a name into the setting before its last colon outside of brackets, and the value's own name."""
    start = depth = 0
    for i, letter in enumerate(name):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and name.startswith(": ", i):
            start = i + 2
    return name[:start], name[start:]


def _takes_an_index(value: str) -> bool:
    try:
        return isinstance(ast.parse(value, mode="eval").body, INDEXED)
    except (SyntaxError, ValueError):
        return False
