"""Lend what a notebook lacks: while a block runs, missing names refer to the library's functions."""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

from hpcdl.identity import code_of
from hpcdl.points import PointsRecord
from hpcdl.training.own_stack import lent
from hpcdl.training.own_stack.bricks import BRICKS

LAB = "own_stack"


def mine(namespace: dict, record: PointsRecord) -> list[str]:
    """Return the notebook's own bricks: their functions exist, and are the code that earned all points."""
    return [
        brick
        for brick, made in BRICKS.items()
        if all(f in namespace for f in made.functions) and _passed(brick, record, code_of(namespace, made.functions))
    ]


def _passed(brick: str, record: PointsRecord, code: str) -> bool:
    last = record.last(f"{LAB}.{brick}")
    return last is not None and last.points == last.most > 0 and last.code == code


@contextlib.contextmanager
def lending(namespace: dict, own: list[str]) -> Iterator[dict[str, str]]:
    """Run the block with the library's functions in `namespace` for every brick that is not in `own`.

    Yields "yours" or "lent" by brick. Afterwards every name has its old value. Raises ValueError for an unknown brick.
    """
    if unknown := [name for name in own if name not in BRICKS]:
        raise ValueError(f"own has {unknown[0]!r}; the bricks are {', '.join(BRICKS)}")
    names = [f for brick, made in BRICKS.items() if brick not in own for f in made.functions]
    before = {name: namespace[name] for name in names if name in namespace}
    namespace.update(_lent(names, namespace))
    try:
        yield {brick: "yours" if brick in own else "lent" for brick in BRICKS}
    finally:
        for name in names:
            del namespace[name]
        namespace.update(before)


def _lent(names: list[str], namespace: dict) -> dict[str, Any]:
    """Return the library's functions of these names; functions of `lent` call the notebook's functions where they
    exist."""
    around = {**vars(lent), **{f: namespace[f] for made in BRICKS.values() for f in made.functions if f in namespace}}
    found = {name: getattr(lent, name) for name in names}
    around |= {name: _placed(value, around) for name, value in found.items()}
    return {name: around[name] for name in names}


def _placed(value: Any, around: dict) -> Any:
    """Return a function of `lent` that looks names up in `around`; other functions are unchanged."""
    if not isinstance(value, types.FunctionType) or value.__module__ != lent.__name__:
        return value
    placed: Callable = types.FunctionType(value.__code__, around, value.__name__, value.__defaults__, value.__closure__)
    placed.__module__ = "__main__"  # pickled to engines with everything it calls, not by name
    return placed
