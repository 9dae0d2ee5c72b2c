"""Compare by what ranks divide their losses: a mean over weights or masks is no mean over samples.

Before a backward pass `Terms` are read from the graph of the loss: for each sum over data that the loss contains, its
coefficient, for example 1 / n for a mean over n samples. A rank's gradient counts n_r / N, so the ranks' means give the
mean over all samples only if coefficient times n_r is the same on every rank.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

MOST = 64  # nodes of a graph that are read

SHAPES = {"View", "UnsafeView", "Squeeze", "Unsqueeze", "Reshape", "ReshapeAlias", "Clone", "ToCopy", "Alias", "T"}
LOSSES = {
    "MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "SoftMarginLoss",
    "MultiMarginLoss", "MultilabelMarginLoss", "NllLoss", "NllLoss2D",
}  # fmt: skip
ELEMENTWISE = {
    "Pow", "Abs", "Mul", "Div", "Neg", "Add", "Sub", "Exp", "Log", "Log1P", "Sqrt", "Sigmoid", "Tanh", "Softplus",
    "Clamp", "ClampMin", "ClampMax", "Relu", "Where", "ToCopy", "Clone", "Alias",
}  # fmt: skip
OF_WEIGHTS = ELEMENTWISE | SHAPES | {
    "Mm", "Bmm", "Transpose", "Permute", "Sum", "Mean", "Stack", "Cat", "Select", "LinalgVectorNorm", "Norm", "Trace",
    "Diagonal", "Expand", "LinalgMatrixNorm", "Amax", "Amin", "Max", "Min", "Std", "Var", "Logsumexp", "Prod",
}  # fmt: skip

OF_ALL = {"Std", "Var", "Logsumexp", "Max", "Min", "Amax", "Amin", "Prod", "Median"}  # no sums over samples
NEAR = 12  # nodes below a mean in which samples are looked for that are mixed


class Terms:
    """What the loss of one backward pass contains.

    `coefficients` are those of sums over data; None if the graph has a part that is not known. `elementwise` are
    parameters that the loss uses only in sums over their elements, such as a penalty; `users` are the wrappers that got
    gradients.
    """

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Any):
        self.users: set[int] = set()
        self.elementwise: set[int] = set()
        self._other: set[int] = set()
        self._data: list[Any] = []
        found = _Walk(self)
        try:
            for root, gradient in zip(roots, gradients, strict=True):
                found.walk(root, gradient)
        except Exception:  # a graph of a kind that is not known here
            found.unknown = True
            self.elementwise = set()
        self.coefficients: list[float] | None = None if found.unknown else found.coefficients
        if self.elementwise:
            used = {id(leaf) for node in self._data for leaf in _leaves(node)}
            self.elementwise -= self._other | used


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

    def _visit(self, node: Any, factor: float, constant: bool, summed: bool = False) -> None:
        """Follow `node`, whose gradient is `factor`; `constant`: it does not depend on parameters."""
        self._left -= 1
        if self._left < 0:
            self.unknown = True
            return
        name, head = _name(node), not node._input_metadata[0].shape
        first, *others = [child for child, _ in node.next_functions] or [None]
        if name in SHAPES or name == "Neg" or (name == "Stack" and summed):
            for child in (first, *others):
                if child is not None:
                    self._visit(child, -factor if name == "Neg" else factor, constant, summed)
        elif name in ("Add", "Sub") and head:
            sign = _number(node._saved_alpha) or 0.0
            for child, by in ((first, 1.0), *((other, sign if name == "Add" else -sign) for other in others)):
                if child is not None:
                    self._visit(child, factor * by, constant, summed)
        elif name in ("Mul", "Div"):
            self._scaled(name, node, factor, constant, summed)
        elif name in ("Sum", "Mean"):
            within = prod(node._saved_self_sym_sizes) / max(1, prod(node._input_metadata[0].shape))
            factor = factor / within if name == "Mean" and within else factor
            self._visit(first, factor, constant and name == "Sum", True)
        elif name in LOSSES:
            self._end(node, factor / _divisor(name, node), False)
        elif head and name in DERIVATIVES:
            self._visit(first, factor * DERIVATIVES[name](node), False, summed)
        elif head and name in ("LinalgVectorNorm", "Norm"):
            norm = float(node._saved_result.detach())
            self._end(node, factor / norm if norm else 0.0, False)
        elif head and name in OF_ALL:
            self._end(node, factor, False)
        elif head and not summed and name != "AccumulateGrad" and not hasattr(node, "variable"):
            self.unknown = True
        else:
            self._end(node, factor, constant and summed)

    def _scaled(self, name: str, node: Any, factor: float, constant: bool, summed: bool) -> None:
        """Follow a product or a quotient, if one of the two is a number."""
        first, other = [child for child, _ in node.next_functions] + [None] * (2 - len(node.next_functions))
        by = _number(node._saved_other) if first is not None else None
        if first is not None and by is not None and (by or name == "Mul"):
            self._visit(first, factor * by if name == "Mul" else factor / by, constant and other is None, summed)
        elif first is not None:
            self._end(node, factor, constant and summed)
            return
        self_value = _number(node._saved_self) if other is not None else None
        if other is not None and self_value is not None:
            if name == "Div":
                below = float(node._saved_other.detach()) if node._saved_other.numel() == 1 else 0.0
                self_value = -self_value / below**2 if below else 0.0
            self._visit(other, factor * self_value, constant and first is None and name == "Mul", summed)
        elif other is not None and first is None:
            self._end(node, factor, constant and summed)

    def _end(self, node: Any, factor: float, elementwise: bool) -> None:
        """Note the sum that ends here, over data or over a parameter's elements."""
        leaves = _of_weights(node, ELEMENTWISE if elementwise else OF_WEIGHTS)
        if leaves is not None:
            (self.terms.elementwise if elementwise else self.terms._other).update(map(id, leaves))
            return
        if elementwise and (leaves := _of_weights(node, OF_WEIGHTS)) is not None:
            self.terms._other.update(map(id, leaves))
            return
        self.terms._data.append(node)
        self.coefficients += [factor] if (mixed := _mixed(node)) is None else [factor, mixed]


DERIVATIVES: dict[str, Callable[[Any], float]] = {
    "Sqrt": lambda node: 0.5 / float(node._saved_result.detach()) if node._saved_result.detach() else 0.0,
    "Exp": lambda node: float(node._saved_result.detach()),
    "Log": lambda node: 1 / float(node._saved_self.detach()),
    "Log1P": lambda node: 1 / (1 + float(node._saved_self.detach())),
    "Reciprocal": lambda node: -(float(node._saved_result.detach()) ** 2),
    "Pow": lambda node: node._saved_exponent * float(node._saved_self.detach()) ** (node._saved_exponent - 1),
}


def _name(node: Any) -> str:
    return node.name().rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


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


def _mixed(node: Any) -> float | None:
    """Return a number that differs between ranks if the samples of a batch are mixed near `node`; else None."""
    todo, name = [node], _name(node)
    if name in OF_ALL:
        saved = node._saved_result if hasattr(node, "_saved_result") else node._saved_self
        return float(saved.detach().sum())
    for _ in range(NEAR):
        if not todo:
            return None
        node = todo.pop(0)
        name = _name(node)
        children = [child for child, _ in node.next_functions if child is not None]
        if name == "Mm" and len(children) == 2 and len(set(node._input_metadata[0].shape)) == 1:
            if all(_of_weights(child, OF_WEIGHTS) is None for child in children):
                return float(node._saved_self.detach().sum())  # samples times samples
        elif name in ELEMENTWISE | SHAPES | LOSSES | {"LogSoftmax", "Softmax"}:
            todo += children
    return None


def _of_weights(node: Any, names: set[str]) -> list[torch.Tensor] | None:
    """Return the parameters of a graph that has nothing but parameters, by functions in `names`; None for others."""
    found: dict[int, torch.Tensor] = {}
    todo, seen = [node], set()
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        name = _name(each)
        if name == "AccumulateGrad":
            if not isinstance(each.variable, nn.Parameter):
                return None
            found[id(each.variable)] = each.variable
            continue
        children = [child for child, _ in each.next_functions if child is not None]
        missing = len(children) < len(each.next_functions)
        shape = tuple(each._input_metadata[0].shape)
        if name not in names or len(seen) > MOST or (missing and not all(_shape(child) == shape for child in children)):
            return None
        todo += children
    return list(found.values())


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.variable.shape) if hasattr(node, "variable") else tuple(node._input_metadata[0].shape)


def _leaves(node: Any) -> Iterator[torch.Tensor]:
    """Yield all parameters below `node`."""
    todo, seen = [node], {node}
    while todo:
        each = todo.pop()
        if hasattr(each, "variable"):
            yield each.variable
        new = {child for child, _ in each.next_functions if child is not None} - seen
        seen |= new
        todo += new
