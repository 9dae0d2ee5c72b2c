"""Copies of a check's values, so that a function's changes do not affect the check's own."""

from typing import Any

import torch


def copied(value: Any, copies: dict) -> Any:
    """Copy tensors, lists, dicts and tuples, each once; return everything else unchanged."""
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
