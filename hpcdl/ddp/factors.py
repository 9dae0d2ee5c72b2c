"""Read by what nodes of a loss multiply gradients: numbers that they saved, and slopes."""

from math import frexp, isfinite
from typing import Any

import torch

from hpcdl.ddp.mixing import shape_of

SHORT = (torch.float16, torch.bfloat16)


def number(x: Any) -> float | None:
    """Return the number in `x`, a number or a tensor without axes; a tensor of one element may be a batch of one."""
    if isinstance(x, torch.Tensor):
        return float(x.detach()) if not x.dim() and not x.is_complex() and not x.is_meta else None
    return float(x) if isinstance(x, int | float) else None


def is_rounded(x: Any) -> bool:
    """Return whether 16 bits may have rounded the number in `x`: small counts and halves, quarters, ... are exact."""
    if not isinstance(x, torch.Tensor) or x.dtype not in SHORT:
        return False
    value, eps = abs(float(x.detach())), torch.finfo(x.dtype).eps
    is_half = frexp(value)[0] == 0.5 and value >= eps
    return isfinite(value) and not (value < 2 / eps and (value.is_integer() or is_half))


def divisor(name: str, node: Any) -> float:
    """Return by what a loss function divides its sum."""
    if node._saved_reduction != 1:
        return 1.0
    if not name.startswith("Nll"):
        return float(node._saved_self.numel()) or 1.0
    total = node._saved_total_weight.detach()
    return (_total_weight(node) if total.dtype in SHORT else float(total)) or 1.0


def _total_weight(node: Any) -> float:
    """Return the sum of the targets' weights, which 16 bits have rounded."""
    ignored = node._saved_ignore_index
    target = node._saved_target
    kept = target[target != (ignored - 2**64 if ignored >= 2**63 else ignored)]
    weight = node._saved_weight
    return float(kept.numel() if weight is None else weight.detach().double()[kept].sum())


def slopes(node: Any) -> list[tuple[Any, float]] | None:
    """Return the children of a function of numbers, with its derivatives; None if it has others, or is Python's."""
    children = [child for child, _ in node.next_functions]
    if (
        isinstance(node, torch.autograd.function.BackwardCFunction)
        or hasattr(node, "variable")
        or not any(children)
        or any(child is not None and shape_of(child) for child in children)
    ):
        return None
    with torch.no_grad():
        made = node(torch.ones((), dtype=node._input_metadata[0].dtype, device=node._input_metadata[0].device))
    found = made if isinstance(made, tuple) else (made,)
    numbers = [0.0 if slope is None else float(slope) for slope in found]
    return [
        (child, slope if isfinite(slope) else 0.0)
        for child, slope in zip(children, numbers, strict=False)
        if child is not None
    ]
