"""Copies of a check's values: what a function changes in them is not changed in the check's own."""

from typing import Any

import torch


def copied(value: Any, copies: dict) -> Any:
    """Tensors, lists, dicts and tuples copied, each once; the rest as it is."""
    if id(value) in copies:
        return copies[id(value)]
    if type(value) is torch.Tensor:
        copy: Any = value.detach().clone().requires_grad_(value.requires_grad)
    elif type(value) is dict:
        copy = {key: copied(item, copies) for key, item in value.items()}
    elif type(value) in (list, tuple):
        copy = type(value)(copied(item, copies) for item in value)
    else:
        return value
    copies[id(value)] = copy
    return copy
