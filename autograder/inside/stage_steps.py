"""A pipeline's stage as an answer gets it, and what its book says was done."""

import operator
from collections.abc import Callable
from typing import Any

from hpcdl.nn.stage import Stage

from .doors import opaque


class Steps:
    """A stage without its module and counts; a book has each op, once it is done."""

    __slots__ = ("backward", "empty", "forward", "rows", "weights", "zero_grad")

    def __init__(self, stage: Stage, note: Callable):
        def noted(op: str, do: Callable) -> Callable:
            def step(k: Any, *given: Any, **named: Any) -> Any:
                result = do(k, *given, **named)
                note(op, str(operator.index(k)))
                return result

            return opaque(step)

        self.forward, self.backward = noted("F", stage.forward), noted("B", stage.backward)
        self.weights, self.rows = noted("W", stage.weights), list(stage.rows)
        self.empty, self.zero_grad = opaque(lambda op, k: stage.empty(op, k)), opaque(lambda: stage.zero_grad())


def followed(result: tuple, entries: list) -> tuple:
    """Add the last batch's ops, and the most microbatches held at a time, each from its F to its W."""
    done: list[tuple[str, int]] = []
    held, most = set[int](), 0
    for op, k, *_ in entries:
        if op == "begin":
            done, held, most = [], set(), 0
            continue
        done.append((op, int(k)))
        if op == "F":
            held.add(int(k))
        elif op == "W":
            held.discard(int(k))
        most = max(most, len(held))
    return *result, done, most
