"""What an answer could leave behind to answer a harness's questions: torch's modes, and attributes of a tensor.

A mode of torch's that is on sees each function that a harness calls; an attribute of a tensor comes before the method
of the same name.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._device import DeviceContext

from autograder.boundary.own import contextlib

from .library import name_of

C: Any = torch._C
STACKS = (  # of modes that see functions, and of those that see operators: length, taking off, putting on
    (C._len_torch_function_stack, C._pop_torch_function_stack, C._push_on_torch_function_stack),
    (C._len_torch_dispatch_stack, partial(C._pop_torch_dispatch_stack, None), C._push_on_torch_dispatch_stack),
)
METHODS = frozenset(dir(torch.Tensor))
DICT: Any = vars(torch._C.TensorBase).get("__dict__") or vars(torch.Tensor)["__dict__"]


def count() -> tuple[int, ...]:
    """Return how many modes of both kinds are on."""
    return tuple([length() for length, *_ in STACKS])


def leave(before: tuple[int, ...] = (0, 0)) -> list[str]:
    """Leave all modes but those that were on `before`, and torch's for a default device; return what put them on."""
    left = []
    for most, (length, pop, push) in zip(before, STACKS, strict=True):
        modes = [pop() for _ in range(length() - most)]
        left += [f"{name_of(type(mode))}.__enter__" for mode in modes if type(mode) is not DeviceContext]
        for mode in reversed(modes):
            if type(mode) is DeviceContext:
                push(mode)
    return left


@contextlib.contextmanager
def graphs(enabled: bool) -> Iterator[None]:
    """Let autograd record a graph in the block on this thread, or not. Modes that an answer has turned on see
    nothing of it."""
    before = _turned(enabled)
    try:
        yield
    finally:
        _turned(before)


def _turned(
    enabled: bool,
    turn: Callable = C._set_grad_enabled,
    modes: Callable = C._len_torch_function_stack,
    without_modes: Callable = C.DisableTorchFunction,
) -> bool:
    """Turn graphs on or off; return whether they were on. The defaults are torch's own functions: what comes before
    them by now (`shims`) would take a call that a mode passes on for an answer's."""
    if modes():
        with without_modes():
            return _turned(enabled, modes=int)
    before = torch.is_grad_enabled()
    turn(enabled)
    return before


def hidden_methods(values: Iterable[Any]) -> list[str]:
    """Return what made attributes that hide a tensor's methods, among values and the items of lists and tuples."""
    flat = [item for value in values for item in (value if type(value) in (list, tuple) else (value,))]
    own = [DICT.__get__(item) for item in flat if isinstance(item, torch.Tensor)]
    return [f"torch.Tensor.__setattr__({name!r})" for names in own for name in METHODS.intersection(names)]
