"""What a notebook lacks is lent: for as long as a block runs its names mean the library's functions."""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

from hpcdl.identity import code_of
from hpcdl.points import Record
from hpcdl.training.own_stack import lent
from hpcdl.training.own_stack.bricks import BRICKS

LAB = "own_stack"


def mine(namespace: dict, record: Record) -> list[str]:
    """The bricks that are the notebook's own: their functions are there, and are the code that had all points."""
    return [
        brick
        for brick, made in BRICKS.items()
        if all(f in namespace for f in made.functions) and _passed(brick, record, code_of(namespace, made.functions))
    ]


def _passed(brick: str, record: Record, code: str) -> bool:
    last = record.last(f"{LAB}.{brick}")
    return last is not None and last.points == last.most > 0 and last.code == code


@contextlib.contextmanager
def lending(namespace: dict, own: list[str]) -> Iterator[dict[str, str]]:
    """Run the block with the library's functions in `namespace` for every brick that is not in `own`.

    By brick "yours" or "lent". Afterwards every name means what it meant before. Raises ValueError for a brick that
    there is none of.
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
    """The library's functions of these names; those made for this call what the notebook has, where it has it."""
    around = {**vars(lent), **{f: namespace[f] for made in BRICKS.values() for f in made.functions if f in namespace}}
    found = {name: getattr(lent, name) for name in names}
    around |= {name: _placed(value, around) for name, value in found.items()}
    return {name: around[name] for name in names}


def _placed(value: Any, around: dict) -> Any:
    """A function of `lent` that looks names up in `around`; what lives elsewhere is left as it is."""
    if not isinstance(value, types.FunctionType) or value.__module__ != lent.__name__:
        return value
    placed: Callable = types.FunctionType(value.__code__, around, value.__name__, value.__defaults__, value.__closure__)
    placed.__module__ = "__main__"  # to be sent to an engine with what it calls, not by its name
    return placed
