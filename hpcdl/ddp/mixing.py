"""Find where the graph of a loss mixes samples, and which parts of it have nothing but parameters."""

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
    "Diagonal", "Expand", "Unbind", "LinalgMatrixNorm", "Amax", "Amin", "Max", "Min", "Std", "Var", "Logsumexp", "Prod",
}  # fmt: skip

CUMULATIVE = {"Cumsum", "Cumprod", "Cummax", "Cummin", "Logcumsumexp", "Sort"}
OF_ALL = {"Std", "Var", "Logsumexp", "Max", "Min", "Amax", "Amin", "Prod", "Median"}  # no sums over samples
LINEAR = SHAPES | {"Neg", "Add", "Sub", "Rsub", "Sum", "Mean", "Slice", "Select", "Expand", "MaskedFill"}
AXES = {"Sum", "Mean", "LinalgVectorNorm", "Norm", "Topk", "Kthvalue"} | CUMULATIVE | OF_ALL  # work along some
PLACES = {"Flip", "Roll", "Unsqueeze", "Slice"}  # move samples to the places of others
BELOW = ELEMENTWISE | SHAPES | LOSSES | LINEAR | AXES | PLACES | {
    "LogSoftmax", "Softmax", "Maximum", "Minimum", "Reciprocal", "Rsqrt", "Sin", "Cos", "Silu", "Gelu", "Gather",
    "Erf", "Expm1", "LogSigmoid", "Elu", "LeakyRelu", "Dot",
}  # fmt: skip
STATISTICS = {"NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"}
NEAR = 32  # nodes below a mean in which samples are looked for that are mixed


def mixed_numbers(node: Any) -> float | None:
    """Return a number that differs between ranks if the samples of a batch are mixed near `node`; else None."""
    todo, name = [node], name_of(node)
    if name in OF_ALL and 0 in axes_of(node):
        saved = node._saved_result if hasattr(node, "_saved_result") else node._saved_self
        return float(saved.detach().sum())
    for _ in range(NEAR):
        if not todo:
            return None
        node = todo.pop(0)
        name = name_of(node)
        children = [child for child, _ in node.next_functions if child is not None]
        if name == "Mm" and len(children) == 2 and len(set(node._input_metadata[0].shape)) == 1:
            if all(of_weights(child, OF_WEIGHTS) is None for child in children):
                return float(node._saved_self.detach().sum())  # samples times samples
        elif name in ELEMENTWISE | SHAPES | LOSSES | {"LogSoftmax", "Softmax"}:
            todo += children
    return None


def meeting(node: Any) -> set[tuple[int, int]]:
    """Return the lengths of first axes along which elements meet near `node`: samples, if the axis is theirs.

    Each has the length of the first axis after it, which may be that of the samples then; 0 if it cannot be.
    """
    found, todo, seen = set[tuple[int, int]](), [(node, False, False)], 0
    while todo and seen < NEAR:
        each, bends, pairs = todo.pop(0)
        seen += 1
        name, children = name_of(each), [child for child, _ in each.next_functions if child is not None]
        data = [child for child in children if of_weights(child, OF_WEIGHTS) is None]
        if name == "Cdist" and len(data) > 1:
            found.add((each._saved_x1.shape[-2], 0))
        elif name == "Mm" and len(data) > 1:
            (rows, inner), columns = each._saved_self_sym_sizes, each._saved_mat2_sym_sizes[1]
            found |= {(inner, 0), (rows if rows == columns else 0, 0)}
        elif name not in BELOW or not data:
            continue
        shape = shape_of(data[0]) if data else ()
        if data and shape and 0 in axes_of(each):
            shorter = shape_of(each)[:1] != shape[:1]
            needs = {
                "Sum": bends,
                "Mean": bends,
                "Flip": pairs,
                "Roll": pairs,
                "Unsqueeze": pairs,
                "Slice": pairs and shorter,
            }
            if (name in AXES or name in PLACES) and needs.get(name, True):
                found.add((shape[0], (shape_of(each) or (0,))[0] if name in AXES - CUMULATIVE else 0))
        pairs = pairs or len(data) > 1
        bends = bends or (name not in LINEAR and not (name in ("Mul", "Div") and len(data) < 2))
        todo += [(child, bends, pairs) for child in data]
    return found


def has_batch_norm(node: Any) -> bool:
    """Return whether the graph of `node` has batch norm that takes means over a batch; instance norm has one row."""
    todo, seen = [node], {node}
    while todo:
        each = todo.pop()
        if name_of(each) in STATISTICS and getattr(each, "_saved_training", True) and shape_of(each)[0] > 1:
            return True
        new = {child for child, _ in each.next_functions if child is not None} - seen
        seen |= new
        todo += new
    return False


def axes_of(node: Any) -> set[int]:
    """Return the axes of its input along which `node` works: all, if it names none."""
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    dims = getattr(node, "_saved_dim", getattr(node, "_saved_dims", None))
    if sizes is None:
        saved = getattr(node, "_saved_self", None)
        sizes = shape_of(node) if saved is None else saved.shape
    dims = (dims,) if isinstance(dims, int) else dims
    return {(dim - 2**64 if dim >= 2**63 else dim) % max(1, len(sizes)) for dim in dims or range(max(1, len(sizes)))}


def of_weights(node: Any, names: set[str]) -> list[torch.Tensor] | None:
    """Return the parameters of a graph that has nothing but parameters, by functions in `names`; None for others."""
    found: dict[int, torch.Tensor] = {}
    todo, seen = [node], set()
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        name = name_of(each)
        if name == "AccumulateGrad":
            if not isinstance(each.variable, nn.Parameter):
                return None
            found[id(each.variable)] = each.variable
            continue
        children = [child for child, _ in each.next_functions if child is not None]
        missing = len(children) < len(each.next_functions)
        shape = tuple(each._input_metadata[0].shape)
        if (
            name not in names
            or len(seen) > MOST
            or (missing and not all(shape_of(child) == shape for child in children))
        ):
            return None
        todo += children
    return list(found.values())


def shape_of(node: Any) -> tuple[int, ...]:
    return tuple(node.variable.shape) if hasattr(node, "variable") else tuple(node._input_metadata[0].shape)


def name_of(node: Any) -> str:
    return node.name().rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
