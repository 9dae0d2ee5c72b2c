"""Compare by what ranks divide their losses: a mean over weights or masks is no mean over samples.

Before a backward pass `Terms` are read from the graph of the loss: for each sum over data that the loss contains, its
coefficient, for example 1 / n for a mean over n samples. A rank's gradient counts n_r / N, so the ranks' means give the
mean over all samples only if coefficient times n_r is the same on every rank. That does not find sums, whose
coefficients are equal without a division by n_r, and losses that combine samples with each other: `Terms` note both.

A checkpoint, hpcdl's or torch's reentrant one, has no graph inside until its backward pass calls `backward` again:
that part is read then.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from math import inf, prod
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge
from torch.utils._python_dispatch import _disable_current_modes

from hpcdl.ddp.factors import divisor, is_rounded, number, slopes
from hpcdl.ddp.mixing import (
    ELEMENTWISE,
    LOSSES,
    OF_ALL,
    OF_WEIGHTS,
    SHAPES,
    axes_of,
    meeting,
    mixed_numbers,
    name_of,
    of_weights,
)

MOST = 320  # nodes of a loss that are read
ELSEWHERE = "it is checked where it is computed"


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

    `coefficients` are those of sums over data; None if the graph has a part that is not known, and `unread` says which.
    `elementwise` are parameters that the loss uses only in sums over their elements, such as a penalty; `users` are the
    wrappers that got gradients, and how many samples each counted in a forward pass. `divided` has the divisors of each
    sum over data, and `mixed` the lengths of first axes along which samples meet, if the axis is theirs: before and
    after. `nested`: the loss contains gradients of parameters.
    """

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Any, nested: bool = False):
        self.nested = nested
        self.users: dict[int, frozenset[float]] = {}
        self.elementwise: set[int] = set()
        self._other: set[int] = set()
        self._data: list[Any] = []
        self.divided: list[Divided] = []
        self.mixed: set[tuple[int, int]] = set()
        self._coefficients: list[float] = []
        self._unread = ""
        self._inside: dict[int, tuple[Any, Divided]] = {}  # nodes that may have a graph inside, by their identity
        self._read(roots, gradients, WHOLE)

    def _read(self, roots: Sequence[torch.Tensor], gradients: Any, divided: Divided) -> None:
        walk = _Walk(self)
        try:
            # A mode, such as a counter of flops, must not see what is read.
            with _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext():
                for root, gradient in zip(roots, gradients, strict=True):
                    walk.begin(root, gradient, divided)
        except Exception as error:  # a graph of a kind that is not known here
            self.note_unread(f"reading it raises {type(error).__name__}")
            self.elementwise = set()
        if self.elementwise:
            used = {id(leaf) for node in self._data for leaf in leaves_of(node)}
            self.elementwise -= self._other | used

    def note_unread(self, why: str) -> None:
        """Note a part of the graph that is not known; the first counts."""
        self._unread = self._unread or why

    @property
    def unread(self) -> str:
        """Return why a part of the graph is not known, such as "it has CompiledFunctionBackward"; else ""."""
        names = (f"it has {node.name()}" for node, _ in self._inside.values())
        return self._unread or next(names, "")

    @property
    def coefficients(self) -> list[float] | None:
        return None if self.unread and not self.nested else self._coefficients

    def expect(self) -> None:
        """Read the graph inside a node of Python's when its backward pass, which may be of a checkpoint, calls another.

        `hpcdl.ddp.backward_passes` gives `reads_loss` what that pass begins with.
        """
        for node, divided in self._inside.values():
            node.reads_loss = partial(self._read_inside, id(node), divided)

    def _read_inside(self, node: int, divided: Divided, roots: Sequence[torch.Tensor], gradients: Any) -> None:
        pairs = [(x, by) for x, by in zip(roots, gradients, strict=True) if isinstance(x, torch.Tensor) and not x.dim()]
        if pairs and node in self._inside:
            self._inside.pop(node)[0].__dict__.pop("reads_loss", None)
            self._read([x for x, _ in pairs], [by for _, by in pairs], divided)
            self.expect()

    def end(self) -> None:
        """End the pass: what has not been read by now is not known."""
        self.note_unread(self.unread)
        for node, _ in self._inside.values():
            node.__dict__.pop("reads_loss", None)
        self._inside, self._data = {}, []

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
        self.terms, self._left = terms, MOST

    def begin(self, root: Any, gradient: Any, divided: Divided) -> None:
        """Follow the graph of `root`, a tensor or an edge, whose gradient is `gradient`, or 1."""
        node, i = (root.node if isinstance(root, GradientEdge) else root.grad_fn), root.output_nr
        factor = 1.0 if gradient is None else self._number(gradient)
        if node is None or node._input_metadata[i].shape or factor is None:
            self.terms.note_unread("backward() does not begin at a number that has a graph")
        else:
            self._visit(node, factor, True, False, divided)

    def _number(self, x: Any) -> float | None:
        """Return the number in `x`, or None; where 16 bits have rounded it, nothing can be read from it."""
        value = number(x)
        if value is not None and is_rounded(x):
            self.terms.note_unread(f"it has the number {value:g} in {str(x.dtype).removeprefix('torch.')}, rounded")
        return value

    def _visit(self, node: Any, factor: float, constant: bool, summed: bool = False, divided: Divided = WHOLE) -> None:
        """Follow `node`, whose gradient is `factor`; `constant`: it does not depend on parameters."""
        self._left -= 1
        if self._left < 0:
            self.terms.note_unread(f"it has more than {MOST} nodes")
            self.terms._data.append(node)
            return
        name, head = name_of(node), not node._input_metadata[0].shape
        first, *others = [child for child, _ in node.next_functions] or [None]
        if name in SHAPES or name == "Neg" or (name == "Stack" and summed):
            for child in (first, *others):
                if child is not None:
                    self._visit(child, -factor if name == "Neg" else factor, constant, summed, divided)
        elif name in ("Add", "Sub") and head:
            sign = self._number(node._saved_alpha) or 0.0
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
        elif name == "Dot" and head:
            self._end(node, factor, False, divided)
        elif name in LOSSES:
            mean = node._saved_reduction == 1
            self._end(node, factor / divisor(name, node), False, divided.by(inf) if mean else divided)
        elif head and name in ("LinalgVectorNorm", "Norm"):
            norm = float(node._saved_result.detach())
            self._end(node, factor / norm if norm else 0.0, False)
        elif head and name in OF_ALL:
            self._end(node, factor, False)
        elif head and (children := slopes(node)) is not None:
            for child, slope in children:
                self._visit(child, factor * slope, False, summed, divided)
        elif getattr(node, "is_checked", False):  # of a pipeline's loss
            self.terms.note_unread(ELSEWHERE)
        elif _is_closed(node, summed):
            self.terms._data.append(node)
            self.terms._inside[id(node)] = node, divided
        elif head and not summed and not hasattr(node, "variable") and of_weights(node, OF_WEIGHTS) is None:
            self.terms._data.append(node)
            self.terms.note_unread(f"it has {node.name()}")
        else:
            self._end(node, factor, constant and summed, divided if summed else None)

    def _scaled(self, name: str, node: Any, factor: float, constant: bool, summed: bool, divided: Divided) -> None:
        """Follow a product or a quotient, if one of the two is a number."""
        first, other = [child for child, _ in node.next_functions] + [None] * (2 - len(node.next_functions))
        by = self._number(node._saved_other) if first is not None else None
        if first is not None and by is not None and (by or name == "Mul"):
            times = by if name == "Mul" else 1 / by
            less = divided.by(1 / times if times else inf)
            self._visit(first, factor * times, constant and other is None, summed, less)
        elif first is not None:
            self._end(node, factor, constant and summed, divided if summed else None)
            return
        self_value = self._number(node._saved_self) if other is not None else None
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
        self.terms._coefficients += [factor] if (mixed := mixed_numbers(node)) is None else [factor, mixed]
        self.terms.mixed |= meeting(node)
        if divided is not None:
            self.terms.divided.append(divided)


def _is_closed(node: Any, summed: bool) -> bool:
    """Return whether `node` is a function of Python's that returned numbers, which may be of any kind."""
    numbers = [not each.shape for each in node._input_metadata]
    is_pythons = isinstance(node, torch.autograd.function.BackwardCFunction)
    return is_pythons and (all(numbers) or (any(numbers) and not summed))


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
