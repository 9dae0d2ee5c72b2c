"""A chunk of a network as a pipeline uses it: F, B and W of one microbatch at a time, each when the schedule says.

The gradient of the input (B) and of the weights (W) come apart as in Qi et al. 2024, "Zero bubble pipeline
parallelism". B goes through the graph from the output to the input, and notes the gradient at the output of every layer
with weights on its way; W needs only that and the layer's input, which the graph holds until then. Recomputation: Chen
et al. 2016, "Training deep nets with sublinear memory cost".
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge


class Chunk(Protocol):
    """What `run_stage` calls; k is the microbatch. Gradients of weights add up over microbatches."""

    def forward(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """F: the output; keeps what the backward pass needs. `x` requires a gradient where B is to find it."""

    def backward(self, k: int, dy: torch.Tensor) -> torch.Tensor | None:
        """B and W in one: the gradient of the input, None where it needs none."""

    def backward_input(self, k: int, dy: torch.Tensor) -> torch.Tensor | None:
        """B alone; keeps what W needs."""

    def backward_weight(self, k: int) -> None:
        """W alone, after B."""


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
        """Where the backward pass begins, with `dy`."""
        self._gradient[:] = [dy]
        return self._number


class _Number(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, gradient):
        ctx.gradient = gradient
        return y.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return ctx.gradient[0], None


class _Call(NamedTuple):
    """A layer with weights, and the end of its part of the graph."""

    params: list[torch.Tensor]
    end: End


class Passed(NamedTuple):
    """What is left of a forward pass: its input, the graph's end, and the calls on the way. Outputs are let go."""

    x: torch.Tensor
    end: End | None  # None where nothing requires a gradient
    calls: list[_Call]


class Layers:
    """A module as a `Chunk`, by torch's autograd: gradients add up in `param.grad`.

    With `recompute` F keeps its input alone, and B computes the rest again, with the same random numbers. Parameters
    that a layer of the module does not have to itself (tied ones, those of nn.MultiheadAttention) are right as well; W
    goes through the whole graph for them once more. Blocks that are checkpointed with a backward pass inside (torch's
    use_reentrant=True, `hpcdl.sharding.checkpointed`) cannot leave out the weights: then B does W, too.
    """

    def __init__(self, module: nn.Module, recompute: bool = False):
        self.module, self.recompute = module, recompute
        self._passed: dict[int, Passed] = {}
        self._inputs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # to recompute from, and the generator's state
        self._waiting: dict[int, tuple[Passed, torch.Tensor, list[torch.Tensor | None]]] = {}  # for W
        self._calls: list[_Call] | None = None  # of the forward pass that goes on
        self._reentrant: bool | None = None  # known after the first forward pass
        self._own = _owned(module)
        for layer in self._own:
            layer.register_forward_hook(self._note)

    def forward(self, k: int, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_(x.requires_grad)
        if not self.recompute:
            return self._record(k, x)
        self._inputs[k] = x, torch.get_rng_state()
        with torch.no_grad():
            return self.module(x)

    def backward(self, k: int, dy: torch.Tensor) -> torch.Tensor | None:
        return self._backward_whole(self._take(k), dy)

    def backward_input(self, k: int, dy: torch.Tensor) -> torch.Tensor | None:
        passed = self._take(k)
        if not passed.end:
            return None
        if self._reentrant:
            return self._backward_whole(passed, dy)
        wanted = [call.end.edge for call in passed.calls]
        if passed.x.requires_grad:
            wanted.append(get_gradient_edge(passed.x))
        found: list[torch.Tensor | None] = list(
            torch.autograd.grad([passed.end.seed(dy)], wanted, retain_graph=True, allow_unused=True)
        )
        dx = found.pop() if passed.x.requires_grad else None
        self._waiting[k] = passed, dy, found
        return dx

    def backward_weight(self, k: int) -> None:
        if k not in self._waiting:  # there is nothing to do for it
            return
        passed, dy, gradients = self._waiting.pop(k)
        assert passed.end
        mine = {id(param) for call in passed.calls for param in call.params}
        if rest := [p for p in self.module.parameters() if p.requires_grad and id(p) not in mine]:
            self._add_gradients(rest, passed.end, dy, again=True)
        for call, gradient in zip(passed.calls, gradients, strict=True):
            if gradient is not None:  # else the output does not depend on this layer
                self._add_gradients(call.params, call.end, gradient)

    def _backward_whole(self, passed: Passed, dy: torch.Tensor) -> torch.Tensor | None:
        """B and W in one."""
        if passed.end:
            torch.autograd.backward([passed.end.seed(dy)])
        return passed.x.grad

    def _add_gradients(self, params: Sequence[torch.Tensor], end: End, gradient: torch.Tensor, again: bool = False):
        """The gradients of `params` from that at `end`; with `again` the graph is needed once more."""
        torch.autograd.backward([end.seed(gradient)], retain_graph=again, inputs=params)

    def _record(self, k: int, x: torch.Tensor) -> torch.Tensor:
        self._calls = []
        y = self.module(x)
        if self._reentrant is None:
            self._reentrant = _has_reentrant(y.grad_fn)
        self._passed[k], self._calls = Passed(x, End(y) if y.requires_grad else None, _once(self._calls)), None
        return y.detach()

    def _take(self, k: int) -> Passed:
        if k in self._inputs:
            x, state = self._inputs.pop(k)
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                self._record(k, x)
        return self._passed.pop(k)

    def _note(self, layer: nn.Module, inputs: tuple, y: object) -> None:
        if self._calls is not None and isinstance(y, torch.Tensor) and y.requires_grad:
            self._calls.append(_Call(self._own[layer], End(y)))


def _has_reentrant(node: Any) -> bool:
    """Whether a graph has a checkpointed block whose backward pass runs another one."""
    seen, todo = set(), [node]
    while todo:
        if (node := todo.pop()) is not None and node not in seen:
            seen.add(node)
            if node.name() in ("CheckpointFunctionBackward", "_CheckpointedBackward"):
                return True
            todo += [after for after, _ in node.next_functions]
    return False


def _owned(module: nn.Module) -> dict[nn.Module, list[torch.Tensor]]:
    """The layers inside, and their parameters, that are theirs alone: no part of a layer, and not tied to another."""
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


def _once(calls: list[_Call]) -> list[_Call]:
    """Those of layers that were called once: of one called twice, W must go through the graph between its calls."""
    times = [sum(call.params is other.params for other in calls) for call in calls]
    return [call for call, n in zip(calls, times, strict=True) if n == 1]
