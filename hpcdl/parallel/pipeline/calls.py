"""Calls of layers in a forward pass, and each call's own part of autograd's graph."""

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

WAYS = 64  # remembered ways through a network
EARLY = 32  # passes in which each new way is examined: a step's microbatches may have one row more or less

Signature = tuple[tuple[int, ...], tuple[int, ...]]
REENTRANT = ("CheckpointFunctionBackward", "_CheckpointedBackward")

_local = threading.local()  # of the thread in which backward runs: `task`, the pass that began last


class End:
    """The end of a graph, or of a part of it: the output's `edge`, without the output, and where its gradient goes in.

    `number` hangs on the output, and its gradient is what `seed` is told. (torch would check a gradient that is given
    with the output's shape, and import its compiler to do so: a second, and 70 MB on each rank.)
    """

    def __init__(self, y: torch.Tensor):
        self._gradient: list[torch.Tensor] = []
        self.edge = get_gradient_edge(y)
        self._number = get_gradient_edge(_Number.apply(y, self._gradient))

    def seed(self, dy: torch.Tensor) -> GradientEdge:
        """Return where the backward pass begins, with `dy`."""
        self._gradient[:] = [dy]
        return self._number


class _Number(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, gradient):
        ctx.gradient, ctx.is_checked = gradient, True  # by `checked.AddsUp`
        return y.new_zeros((), dtype=y.dtype.to_real() if y.is_complex() else y.dtype)

    @staticmethod
    def backward(ctx, _):
        _local.task = torch._C._current_graph_task_id()
        return ctx.gradient[0], None


def in_own_pass() -> bool:
    """Return whether the backward pass that runs here began with a `seed`, and not in a user's hook or function."""
    return getattr(_local, "task", None) == torch._C._current_graph_task_id()


class LayerCall(NamedTuple):
    """A layer's parameters, and the end of its part of the graph.

    `direct`: that the parameters are used nowhere but in the operation that makes the output, on which no hook is.
    """

    params: list[torch.Tensor]
    end: End
    direct: bool = False


class LayerCalls:
    """The calls of a forward pass; with `learning` also where each begins in the graph."""

    def __init__(self, learning: bool):
        self.calls: list[LayerCall] = []
        self.begins: list[list[Any]] | None = [] if learning else None
        self.hooks: list[Any] = []  # on the outputs, with `learning`

    def add(self, params: list[torch.Tensor], inputs: tuple, y: torch.Tensor) -> None:
        """Add the call of a layer with `params` that computed `y` from `inputs`."""
        if self.begins is not None:
            found = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
            self.begins.append([get_gradient_edge(x).node for x in found])
            y.register_hook(_nothing).remove()  # what is left is the dict where hooks of later are
            self.hooks.append(y._backward_hooks)
        self.calls.append(LayerCall(params, End(y)))

    def signature(self, roots: Sequence[Any]) -> Signature:
        """Return the layers called and the number of operations between: equal for equal ways through the network.

        autograd numbers its nodes as they are made.
        """
        nodes = [call.end.edge.node for call in self.calls] + [root for root in roots if root is not None]
        numbers = [node._sequence_nr() for node in nodes]
        return tuple(id(call.params) for call in self.calls), tuple(
            after - before for before, after in pairwise(numbers)
        )


def _nothing(gradient: torch.Tensor) -> None:
    """Change nothing; a hook."""


class Known:
    """Results about the graphs of earlier forward passes, by signature.

    Searching a graph takes longer than a small layer, so it happens once for each way through the network. All ways of
    the first passes are examined; later, the first pass with a new way uses the slow method, and the next one is
    examined.
    """

    def __init__(self):
        self._asked, self._passes = False, 0
        self._found: dict[Signature, tuple[dict[int, bool], bool]] = {}

    @property
    def learning(self) -> bool:
        """Return whether to examine the next pass, if its way is new."""
        return self._asked or self._passes < EARLY

    def judge(self, calls: LayerCalls, roots: Sequence[Any]) -> tuple[list[LayerCall], bool]:
        """Return the calls that alone use their parameters, and whether a block inside runs its own backward pass."""
        signature = calls.signature(roots)
        self._passes += 1
        if signature not in self._found:
            graph, self._asked = _Graph(roots), calls.begins is None and len(self._found) < WAYS
            if calls.begins is None:
                return [], graph.reentrant
            parts = [graph.part(call, begin) for call, begin in zip(calls.calls, calls.begins, strict=True)]
            layers = signature[0]
            once = [i for i, part in enumerate(parts) if part is not None and layers.count(layers[i]) == 1]
            self._found[signature] = {i: bool(parts[i]) and not calls.hooks[i] for i in once}, graph.reentrant
        alone, reentrant = self._found[signature]
        return [calls.calls[i]._replace(direct=direct) for i, direct in alone.items()], reentrant


class _Graph:
    """The nodes that lead to `roots`, and which nodes each goes into."""

    def __init__(self, roots: Sequence[Any]):
        self.into: dict[Any, list[Any]] = {}  # a node -> those that use its result
        todo = [root for root in roots if root is not None]
        seen = set(todo)
        while todo:
            node = todo.pop()
            for before, _ in node.next_functions:
                if before is not None:
                    self.into.setdefault(before, []).append(node)
                    if before not in seen:
                        seen.add(before)
                        todo.append(before)
        self.reentrant = any(node.name() in REENTRANT for node in seen)

    def part(self, call: LayerCall, begin: Sequence[Any]) -> bool | None:
        """Return None if a gradient reaches the call's parameters on a way around its output; else `Call.direct`."""
        end = call.end.edge.node
        inside, todo, around = {end}, [end], set(begin)
        while todo:
            for before, _ in todo.pop().next_functions:
                if before is not None and before not in inside and before not in around:
                    inside.add(before)
                    todo.append(before)
        if any(user not in inside for node in inside - {end} for user in self.into.get(node, ())):
            return None
        leaves = [get_gradient_edge(param).node for param in call.params]
        return all(self.into.get(leaf, []) in ([], [end]) for leaf in leaves)


def in_transform(x: torch.Tensor) -> bool:
    """Return whether this runs inside a transform of torch.func, such as vmap, which has a graph of its own."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


def owned(module: nn.Module) -> dict[nn.Module, list[torch.Tensor]]:
    """Return the layers inside that own their parameters (not part of a layer, not tied), and these parameters."""
    users: dict[int, int] = {}
    leaves = {layer: list(layer.parameters(recurse=False)) for layer in module.modules()}
    for params in leaves.values():
        for param in params:
            users[id(param)] = users.get(id(param), 0) + 1
    return {
        layer: [param for param in params if param.requires_grad]
        for layer, params in leaves.items()
        if any(p.requires_grad for p in params)
        and not list(layer.children())
        and all(users[id(param)] == 1 for param in params)
    }
