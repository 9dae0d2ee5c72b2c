"""A chunk of a network for a pipeline: F, B and W of one microbatch at a time, in the schedule's order.

The gradients of the input (B) and of the weights (W) are separate, as in Qi et al. 2024, "Zero bubble pipeline
parallelism". B goes through the graph from the output to the input, and notes the gradient at the output of every layer
with weights on its way; W needs only that and the layer's input, which the graph holds until then. Recomputation: Chen
et al. 2016, "Training deep nets with sublinear memory cost".
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from hpcdl.ddp.decisions import is_power_of_2, mixes, nodes_made
from hpcdl.ddp.refusals import require_not_wrapped, require_values
from hpcdl.parallel.pipeline.calls import End, Known, LayerCall, LayerCalls, in_transform, owned
from hpcdl.parallel.pipeline.recomputed import Before, Buffer, buffers_of
from hpcdl.parallel.pipeline.values import Value, arguments, call, is_differentiable, like, tensors_of
from hpcdl.sharding.pieces import untraced


class Chunk(Protocol):
    """The interface that `run_stage` calls; k is the microbatch. Weights' gradients accumulate over microbatches."""

    def forward(self, k: int, x: Value) -> Value:
        """F: the output; keeps what the backward pass needs. `x` requires a gradient where B is to find it."""

    def backward(self, k: int, dy: Value) -> Value:
        """B and W in one: the gradient of the input, None where it needs none.

        Of several outputs, `dy` has the gradients of those that are differentiable, a tuple in their order; of several
        inputs the result likewise.
        """

    def backward_input(self, k: int, dy: Value) -> Value:
        """B only; keeps what W needs."""

    def backward_weight(self, k: int) -> None:
        """W only, after B."""


class Passed(NamedTuple):
    """What is left of a forward pass: its input, the outputs' ends, and the calls on the way. Outputs are let go."""

    x: Value
    ends: list[End | None]  # None where nothing requires a gradient
    calls: list[LayerCall]
    reentrant: bool  # a block inside does its own backward pass

    def pairs(self, dy: Value) -> tuple[list[End], list[torch.Tensor]]:
        """Return the ends, and the gradients that enter there."""
        gradients = dy if isinstance(dy, (tuple, list)) else [dy]
        found = [(end, g) for end, g in zip(self.ends, gradients, strict=True) if end and g is not None]
        return [end for end, _ in found], [g for _, g in found]

    def inputs(self) -> list[torch.Tensor]:
        """Return the inputs that are differentiable."""
        return [x for x in tensors_of(self.x, "an input") if is_differentiable(x.dtype)]

    def arranged(self, gradients: Sequence[torch.Tensor | None]) -> Any:
        """Return the gradients of `inputs`: alone or in a tuple, as the input was."""
        return gradients[0] if isinstance(self.x, torch.Tensor) and gradients else tuple(gradients) or None


class Layers:
    """A module as a `Chunk`, by torch's autograd: gradients add up in `param.grad`.

    What passes between parts is a tensor, or a tuple or dict of them, which are the module's arguments. With
    `recompute` F keeps only its input, and B recomputes the rest with the same random numbers. Parameters that a layer
    of the module does not have to itself (tied ones, those of nn.MultiheadAttention) are right as well; W goes through
    the whole graph for them once more. Blocks that are checkpointed with a backward pass inside (torch's
    use_reentrant=True, `hpcdl.sharding.checkpointed`) cannot leave out the weights: then B does W, too. Under
    `torch.no_grad()` nothing is kept. `rows_first` says that the first dimension of inputs and outputs are the rows,
    also where a layer inside has batch_first=False.

    Raises ValueError for a module that is wrapped for data parallelism, lazy, or on the meta device.
    """

    def __init__(
        self, module: nn.Module, recompute: bool = False, rows_first: bool = False, *, replicated: bool = False
    ):
        if not replicated:
            _require_supported(module)
        self.module, self.recompute, self.rows_first = module, recompute, rows_first
        self._passed: dict[int, Passed] = {}
        self._inputs: dict[int, tuple[Value, Before]] = {}  # to recompute from
        self._changing: Sequence[Buffer] | None = None  # what forward passes change
        self._waiting: dict[int, tuple[Passed, Value, list[torch.Tensor | None]]] = {}  # for W
        self._calls: LayerCalls | None = None  # of the current forward pass
        self._first: tuple[Value, Any] = None, None  # the batch's first microbatch and its way through the network
        self._differing = 0  # microbatches that took another way
        self._known = Known()
        self._own = owned(module)
        for layer in self._own:
            layer.register_forward_hook(self._note)

    def forward(self, k: int, x: Value) -> Value:
        if not torch.is_grad_enabled():
            return call(self.module, x)
        x = like(x, [each.detach().requires_grad_(each.requires_grad) for each in tensors_of(x, "an input")])
        if not self.recompute:
            return self._record(k, x)
        before = Before(buffers_of(self.module) if self._changing is None else self._changing)
        with torch.no_grad(), _hooks_refused():
            y = call(self.module, x)
        if self._changing is None:
            self._changing = before.changed()
        self._inputs[k] = x, before
        return y

    def backward(self, k: int, dy: Value) -> Value:
        return self._backward_whole(self._take(k), dy)

    def backward_input(self, k: int, dy: Value) -> Value:
        passed = self._take(k)
        ends, gradients = passed.pairs(dy)
        if not ends:
            return passed.arranged([None for _ in passed.inputs()])
        if passed.reentrant:
            return self._backward_whole(passed, dy)
        calls = [call.end.edge for call in passed.calls]
        inputs = [x for x in passed.inputs() if x.requires_grad]
        seeds = [end.seed(g) for end, g in zip(ends, gradients, strict=True)]
        wanted = [*calls, *map(get_gradient_edge, inputs)]
        found: list[torch.Tensor | None] = list(
            torch.autograd.grad(seeds, wanted, retain_graph=True, allow_unused=True) if wanted else ()
        )
        self._waiting[k] = passed, dy, found[: len(calls)]
        of_inputs = iter(found[len(calls) :])
        return passed.arranged([next(of_inputs) if x.requires_grad else None for x in passed.inputs()])

    def backward_weight(self, k: int) -> None:
        if k not in self._waiting:  # nothing to do
            return
        passed, dy, gradients = self._waiting.pop(k)
        mine = {id(param) for call in passed.calls for param in call.params}
        if rest := [p for p in self.module.parameters() if p.requires_grad and id(p) not in mine]:
            self._add_gradients(rest, *passed.pairs(dy), direct=None)
        for made, gradient in zip(passed.calls, gradients, strict=True):
            if gradient is not None:  # else the output does not depend on this layer
                self._add_gradients(made.params, [made.end], [gradient], direct=made.direct)

    def _backward_whole(self, passed: Passed, dy: Value) -> Value:
        """B and W in one."""
        ends, gradients = passed.pairs(dy)
        if ends:
            torch.autograd.backward([end.seed(g) for end, g in zip(ends, gradients, strict=True)])
        return passed.arranged([x.grad for x in passed.inputs()])

    def _add_gradients(
        self,
        params: Sequence[torch.Tensor],
        ends: Sequence[End],
        gradients: Sequence[torch.Tensor],
        direct: bool | None,
    ) -> None:
        """Add gradients of `params` from those at `ends`; if `direct` is None, the graph is needed once more."""
        seeds = [end.seed(g) for end, g in zip(ends, gradients, strict=True)]
        torch.autograd.backward(seeds, retain_graph=direct is None, inputs=params)

    def _record(self, k: int, x: Value) -> Value:
        self._calls = LayerCalls(self._known.learning)
        begun = nodes_made()
        y = call(self.module, x)
        calls, self._calls = self._calls, None
        self._require_one_way(k, x, (nodes_made() - begun, [id(each.params) for each in calls.calls]))
        found = tensors_of(y, f"what {type(self.module).__name__} returned")
        ends = [End(each) if each.requires_grad else None for each in found if is_differentiable(each.dtype)]
        alone, reentrant = self._known.judge(calls, [each.grad_fn for each in found])
        self._passed[k] = Passed(x, ends, alone, reentrant)
        return like(y, [each.detach() for each in found])

    def _require_one_way(self, k: int, x: Value, way: Any) -> None:
        """Raise RuntimeError if this microbatch went another way than the batch's first one, decided as a whole."""
        if not k:
            self._first = x, way
        self._differing += self._first[1] != way
        if self._first[1] == way or not is_power_of_2(self._differing):
            return
        if any(mixes(self.module, *arguments(self.module, each)) for each in (x, self._first[0])):
            raise RuntimeError(
                "a part of the network takes another way for one microbatch than for another, each as a whole, as an "
                "early exit by the batch's mean does; decide by sample, or use one microbatch"
            )

    def _take(self, k: int) -> Passed:
        if k in self._inputs:
            x, before = self._inputs.pop(k)
            with before.again():
                self._record(k, x)
        return self._passed.pop(k)

    def _note(self, layer: nn.Module, inputs: tuple, y: object) -> None:
        if self._calls is not None and isinstance(y, torch.Tensor) and y.requires_grad and not in_transform(y):
            self._calls.add(self._own[layer], inputs, y)


untraced(Layers._note)  # torch.compile would compile it for every layer


@contextmanager
def _hooks_refused() -> Iterator[None]:
    """Says what to do where a module registers a hook on a tensor in its forward pass, which has no gradients yet."""
    try:
        yield
    except RuntimeError as error:
        if "register a hook on a tensor that doesn't require gradient" in str(error):
            raise ValueError(
                "the module registers a hook on a tensor in forward, and recompute=True runs it without gradients "
                "first; use recompute=False, or register the hook only if the tensor requires a gradient"
            ) from None
        raise


def _require_supported(module: nn.Module) -> None:
    """Raise ValueError for what has no weights of its own yet, or frees them."""
    for name, layer in module.named_modules():
        require_not_wrapped(name, layer)
        require_values(name, layer)
