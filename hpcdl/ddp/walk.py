"""Follow the graph of a loss from its end down to the sums over data that it contains, for `hpcdl.ddp.losses`."""

from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge

from hpcdl.ddp.factors import divisor, is_rounded, number, slopes
from hpcdl.ddp.mixing import ELEMENTWISE, LOSSES, OF_ALL, OF_WEIGHTS, SHAPES, axes_of, name_of, of_weights

if TYPE_CHECKING:
    from hpcdl.ddp.losses import Terms

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


class Path(NamedTuple):
    """What the nodes between the loss and a node make of that node's elements.

    `factor` is their gradient; `constant`: it does not depend on parameters; `summed`: the elements are summed up;
    `divided`: by what their sum is divided.
    """

    factor: float
    constant: bool = True
    summed: bool = False
    divided: Divided = WHOLE

    def times(self, number: float, constant: bool = True) -> "Path":
        return self._replace(factor=self.factor * number, constant=self.constant and constant)

    def scaled(self, number: float, constant: bool) -> "Path":
        """Return the path through a product with a number, which may be a part of a mean."""
        divided = self.divided.by(1 / number if number else inf)
        return self.times(number, constant)._replace(divided=divided)


class Walk:
    """One way down, which notes what it finds in `terms`; it reads at most `MOST` nodes."""

    def __init__(self, terms: "Terms"):
        self.terms, self._left = terms, MOST

    def begin(self, root: Any, gradient: Any, divided: Divided) -> None:
        """Follow the graph of `root`, a tensor or an edge, whose gradient is `gradient`, or 1."""
        node, i = (root.node if isinstance(root, GradientEdge) else root.grad_fn), root.output_nr
        factor = 1.0 if gradient is None else self._number(gradient)
        if node is None or node._input_metadata[i].shape or factor is None:
            self.terms.note_unread("backward() does not begin at a number that has a graph")
        else:
            self._visit(node, Path(factor, divided=divided))

    def _number(self, x: Any) -> float | None:
        """Return the number in `x`, or None; where 16 bits have rounded it, nothing can be read from it."""
        value = number(x)
        if value is not None and is_rounded(x):
            self.terms.note_unread(f"it has the number {value:g} in {str(x.dtype).removeprefix('torch.')}, rounded")
        return value

    def _visit(self, node: Any, path: Path) -> None:
        self._left -= 1
        name = name_of(node)
        if self._left < 0:
            self.terms.note_unread(f"it has more than {MOST} nodes", node)
        elif name in ("Mul", "Div"):
            self._scaled(name, node, path)
        elif name in ("Sum", "Mean"):
            self._reduced(name, node, path)
        elif (factors := self._factors(name, node, path)) is not None:
            for child, factor in zip(_children(node), factors, strict=True):
                if child is not None:
                    self._visit(child, path.times(factor))
        elif not self._ends(name, node, path):
            self._other(node, path)

    def _factors(self, name: str, node: Any, path: Path) -> list[float] | None:
        """Return by what a sum of numbers, or another shape of its input, multiplies gradients; None for others."""
        children = _children(node)
        if name in SHAPES or name == "Neg" or (name == "Stack" and path.summed):
            return [-1.0 if name == "Neg" else 1.0] * len(children)
        if name in ("Add", "Sub") and _is_number(node):
            alpha = self._number(node._saved_alpha) or 0.0
            return [1.0, *[alpha if name == "Add" else -alpha] * (len(children) - 1)]
        return None

    def _scaled(self, name: str, node: Any, path: Path) -> None:
        """Follow a product or a quotient, if one of the two is a number."""
        first, other = _children(node) + [None] * (2 - len(_children(node)))
        by = self._number(node._saved_other) if first is not None else None
        if first is not None and by is not None and (by or name == "Mul"):
            self._visit(first, path.scaled(by if name == "Mul" else 1 / by, other is None))
        elif first is not None:
            self._end(node, path)
            return
        value = self._number(node._saved_self) if other is not None else None
        if value is not None:
            if name == "Div":
                below = float(node._saved_other.detach()) if node._saved_other.numel() == 1 else 0.0
                value = -value / below**2 if below else 0.0
            self._visit(other, path.scaled(value, first is None and name == "Mul"))
        elif other is not None and first is None:
            self._end(node, path)

    def _reduced(self, name: str, node: Any, path: Path) -> None:
        """Follow a sum or a mean."""
        factor, divided = path.factor, path.divided
        within = prod(node._saved_self_sym_sizes) / max(1, prod(node._input_metadata[0].shape))
        if name == "Mean" and within:
            factor /= within
            along = 0 in axes_of(node)
            divided = divided.by(within) if along else divided._replace(parts=(*divided.parts, int(within)))
        self._visit(_children(node)[0], Path(factor, path.constant and name == "Sum", True, divided))

    def _ends(self, name: str, node: Any, path: Path) -> bool:
        """Return whether `node` is a loss or another function that makes one number of its input; note it."""
        factor, divided = path.factor, path.divided
        if name in LOSSES:
            factor /= divisor(name, node)
            self._note(node, factor, False, divided.by(inf) if node._saved_reduction == 1 else divided)
        elif not _is_number(node):
            return False
        elif name == "Dot":
            self._note(node, factor, False, divided)
        elif name in ("LinalgVectorNorm", "Norm"):
            norm = float(node._saved_result.detach())
            self._note(node, factor / norm if norm else 0.0, False)
        elif name in OF_ALL:
            self._note(node, factor, False)
        else:
            return False
        return True

    def _other(self, node: Any, path: Path) -> None:
        """Follow another function of numbers, or note that it ends the path."""
        is_number = _is_number(node)
        if is_number and (children := slopes(node)) is not None:
            for child, slope in children:
                self._visit(child, path.times(slope, False))
        elif getattr(node, "is_checked", False):  # of a pipeline's loss
            self.terms.note_unread(ELSEWHERE)
        elif _is_closed(node, path.summed):
            self.terms.note_inside(node, path.divided)
        elif is_number and not path.summed and not hasattr(node, "variable") and of_weights(node, OF_WEIGHTS) is None:
            self.terms.note_unread(f"it has {node.name()}", node)
        else:
            self._end(node, path)

    def _end(self, node: Any, path: Path) -> None:
        """Note elements, which `path` sums up or not."""
        self._note(node, path.factor, path.constant and path.summed, path.divided if path.summed else None)

    def _note(self, node: Any, factor: float, elementwise: bool, divided: Divided | None = None) -> None:
        """Note the sum that ends here, over data or over a parameter's elements."""
        if elementwise and (leaves := of_weights(node, ELEMENTWISE)) is not None:
            self.terms.note_weights(leaves, True)
        elif (leaves := of_weights(node, OF_WEIGHTS)) is not None:
            self.terms.note_weights(leaves, False)
        else:
            self.terms.note_sum(node, factor, divided)


def _children(node: Any) -> list[Any]:
    return [child for child, _ in node.next_functions]


def _is_number(node: Any) -> bool:
    return not node._input_metadata[0].shape


def _is_closed(node: Any, summed: bool) -> bool:
    """Return whether `node` is a function of Python's that returned numbers, which may be of any kind."""
    numbers = [not each.shape for each in node._input_metadata]
    is_pythons = isinstance(node, torch.autograd.function.BackwardCFunction)
    return is_pythons and (all(numbers) or (any(numbers) and not summed))
