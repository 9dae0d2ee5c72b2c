"""Compare by what ranks divide their losses: a mean over weights or masks is no mean over samples.

Before a backward pass `Terms` are read from the graph of the loss: for each sum over data that the loss contains, its
coefficient, for example 1 / n for a mean over n samples. A rank's gradient counts n_r / N, so the ranks' means give the
mean over all samples only if coefficient times n_r is the same on every rank. That does not find sums, whose
coefficients are equal without a division by n_r, and losses that combine samples with each other: `Terms` note both.
"""

from collections.abc import Iterator, Sequence
from math import inf, isfinite, prod
from typing import Any, NamedTuple

import torch

from hpcdl.ddp.mixing import (
    ELEMENTWISE,
    LOSSES,
    MOST,
    OF_ALL,
    OF_WEIGHTS,
    SHAPES,
    axes_of,
    meeting,
    mixed_numbers,
    name_of,
    of_weights,
    shape_of,
)


class Divided(NamedTuple):
    """What the sum at the end of a path is divided by: `over`, and the lengths of means along other axes than 0."""

    over: float = 1.0
    parts: tuple[int, ...] = ()

    def by(self, number: float) -> "Divided":
        return self._replace(over=self.over * max(1.0, abs(number)))

    def is_below(self, samples: float) -> bool:
        """Return whether this is no division by the number of `samples`."""
        over = self.over
        for length in self.parts:
            over *= length if length % samples == 0 else 1
        return over < samples * (1 - 1e-6)


WHOLE = Divided()  # by nothing


class Terms:
    """What the loss of one backward pass contains.

    `coefficients` are those of sums over data; None if the graph has a part that is not known. `elementwise` are
    parameters that the loss uses only in sums over their elements, such as a penalty; `users` are the wrappers that got
    gradients. `divided` has the divisors of each sum over data, and `mixed` the lengths of first axes along which
    samples meet, if the axis is theirs: before and after. `nested`: the loss contains gradients of parameters.
    """

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Any, nested: bool = False):
        self.nested = nested
        self.users: set[int] = set()
        self.elementwise: set[int] = set()
        self._other: set[int] = set()
        self._data: list[Any] = []
        self.divided: list[Divided] = []
        self.mixed: set[tuple[int, int]] = set()
        found = _Walk(self)
        try:
            for root, gradient in zip(roots, gradients, strict=True):
                found.walk(root, gradient)
        except Exception:  # a graph of a kind that is not known here
            found.unknown = True
            self.elementwise = set()
        self.coefficients: list[float] | None = None if found.unknown and not nested else found.coefficients
        if self.elementwise:
            used = {id(leaf) for node in self._data for leaf in leaves_of(node)}
            self.elementwise -= self._other | used

    def is_no_mean(self, counts: Sequence[float]) -> bool:
        """Return whether the loss is a sum or mixes samples, if forward passes had `counts` samples."""
        return self.mixes(counts) or any(each.is_below(min(counts)) for each in self.divided)

    def mixes(self, counts: Sequence[float]) -> bool:
        """Return whether the loss combines samples with each other, if forward passes had `counts` samples."""
        return self.nested or any(
            axis > 1 and count % axis == 0 and after not in counts for axis, after in self.mixed for count in counts
        )


class _Walk:
    def __init__(self, terms: Terms):
        self.terms, self.coefficients, self.unknown, self._left = terms, list[float](), False, MOST

    def walk(self, root: torch.Tensor, gradient: Any) -> None:
        factor = 1.0 if gradient is None else _number(gradient)
        watched = torch._C._len_torch_dispatch_stack()  # a mode would see what is read here
        if (
            watched
            or not isinstance(root, torch.Tensor)
            or root.dim()
            or root.grad_fn is None
            or factor is None
            or root.dtype in (torch.float16, torch.bfloat16)
        ):
            self.unknown = True
        else:
            self._visit(root.grad_fn, factor, True)

    def _visit(self, node: Any, factor: float, constant: bool, summed: bool = False, divided: Divided = WHOLE) -> None:
        """Follow `node`, whose gradient is `factor`; `constant`: it does not depend on parameters."""
        self._left -= 1
        if self._left < 0:
            self.unknown = True
            return
        name, head = name_of(node), not node._input_metadata[0].shape
        first, *others = [child for child, _ in node.next_functions] or [None]
        if name in SHAPES or name == "Neg" or (name == "Stack" and summed):
            for child in (first, *others):
                if child is not None:
                    self._visit(child, -factor if name == "Neg" else factor, constant, summed, divided)
        elif name in ("Add", "Sub") and head:
            sign = _number(node._saved_alpha) or 0.0
            for child, by in ((first, 1.0), *((other, sign if name == "Add" else -sign) for other in others)):
                if child is not None:
                    self._visit(child, factor * by, constant, summed, divided)
        elif name in ("Mul", "Div"):
            self._scaled(name, node, factor, constant, summed, divided)
        elif name in ("Sum", "Mean"):
            within = prod(node._saved_self_sym_sizes) / max(1, prod(node._input_metadata[0].shape))
            if name == "Mean" and within:
                factor /= within
                along = 0 in axes_of(node)
                divided = divided.by(within) if along else divided._replace(parts=(*divided.parts, int(within)))
            self._visit(first, factor, constant and name == "Sum", True, divided)
        elif name in LOSSES:
            mean = node._saved_reduction == 1
            self._end(node, factor / _divisor(name, node), False, divided.by(inf) if mean else divided)
        elif head and name in ("LinalgVectorNorm", "Norm"):
            norm = float(node._saved_result.detach())
            self._end(node, factor / norm if norm else 0.0, False)
        elif head and name in OF_ALL:
            self._end(node, factor, False)
        elif head and (slopes := _slopes(node)) is not None:
            for child, slope in slopes:
                self._visit(child, factor * slope, False, summed, divided)
        elif head and not summed and name != "AccumulateGrad" and not hasattr(node, "variable"):
            self.unknown = True
        else:
            self._end(node, factor, constant and summed, divided if summed else None)

    def _scaled(self, name: str, node: Any, factor: float, constant: bool, summed: bool, divided: Divided) -> None:
        """Follow a product or a quotient, if one of the two is a number."""
        first, other = [child for child, _ in node.next_functions] + [None] * (2 - len(node.next_functions))
        by = _number(node._saved_other) if first is not None else None
        if first is not None and by is not None and (by or name == "Mul"):
            times = by if name == "Mul" else 1 / by
            less = divided.by(1 / times if times else inf)
            self._visit(first, factor * times, constant and other is None, summed, less)
        elif first is not None:
            self._end(node, factor, constant and summed, divided if summed else None)
            return
        self_value = _number(node._saved_self) if other is not None else None
        if other is not None and self_value is not None:
            if name == "Div":
                below = float(node._saved_other.detach()) if node._saved_other.numel() == 1 else 0.0
                self_value = -self_value / below**2 if below else 0.0
            less = divided.by(1 / self_value if self_value else inf)
            self._visit(other, factor * self_value, constant and first is None and name == "Mul", summed, less)
        elif other is not None and first is None:
            self._end(node, factor, constant and summed, divided if summed else None)

    def _end(self, node: Any, factor: float, elementwise: bool, divided: Divided | None = None) -> None:
        """Note the sum that ends here, over data or over a parameter's elements."""
        leaves = of_weights(node, ELEMENTWISE if elementwise else OF_WEIGHTS)
        if leaves is not None:
            (self.terms.elementwise if elementwise else self.terms._other).update(map(id, leaves))
            return
        if elementwise and (leaves := of_weights(node, OF_WEIGHTS)) is not None:
            self.terms._other.update(map(id, leaves))
            return
        self.terms._data.append(node)
        self.coefficients += [factor] if (mixed := mixed_numbers(node)) is None else [factor, mixed]
        self.terms.mixed |= meeting(node)
        if divided is not None:
            self.terms.divided.append(divided)


def _slopes(node: Any) -> list[tuple[Any, float]] | None:
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
    slopes = made if isinstance(made, tuple) else (made,)
    numbers = [0.0 if slope is None else float(slope) for slope in slopes]
    return [
        (child, number if isfinite(number) else 0.0)
        for child, number in zip(children, numbers, strict=False)
        if child is not None
    ]


def _number(x: Any) -> float | None:
    """Return the number in `x`, a number or a tensor without axes; a tensor of one element may be a batch of one."""
    if isinstance(x, torch.Tensor):
        return float(x.detach()) if not x.dim() and not x.is_complex() and not x.is_meta else None
    return float(x) if isinstance(x, int | float) else None


def _divisor(name: str, node: Any) -> float:
    """Return by what a loss function divides its sum."""
    if node._saved_reduction != 1:
        return 1.0
    weight = float(node._saved_total_weight.detach()) if name.startswith("Nll") else float(node._saved_self.numel())
    return weight or 1.0


def leaves_of(node: Any) -> Iterator[torch.Tensor]:
    """Yield all parameters and other leaves below `node`."""
    todo, seen = [node], {node}
    while todo:
        each = todo.pop()
        if hasattr(each, "variable"):
            yield each.variable
        new = {child for child, _ in each.next_functions if child is not None} - seen
        seen |= new
        todo += new
