"""The tensors that a layer returns, or keeps as attributes."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

OPAQUE = (nn.Module, type, FunctionType, MethodType, ModuleType, partial)  # they hold no results of a layer

PLAIN = (bool, int, float, str)
STANDARD = set(vars(nn.Module()))  # attributes that every module has


def tensors_in(x: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in `x`: in tuples, lists, dicts and other objects."""
    for leaf in tree_flatten(x)[0]:
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif depth and isinstance(leaf, Mapping):
            yield from tensors_in(list(leaf.values()), depth - 1)
        elif depth and hasattr(leaf, "__dict__") and not isinstance(leaf, OPAQUE):
            yield from tensors_in(list(vars(leaf).values()), depth - 1)


def kept_in(modules: Sequence[nn.Module]) -> Iterator[torch.Tensor]:
    """Return the tensors that modules keep as attributes, for example their own loss."""
    for module in modules:
        for name, value in vars(module).items():
            if name not in STANDARD and value is not None and not isinstance(value, PLAIN):
                yield from tensors_in(value, depth=1)
