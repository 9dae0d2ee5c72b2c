"""Activation checkpointing: keep a layer's inputs for backward, and recompute the rest.

Chen et al. 2016, "Training deep nets with sublinear memory cost".
"""

import contextlib
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch

from hpcdl.first_derivative import first_only

Generators = Sequence[torch.Generator]


def checkpointed(f: Callable, *inputs: Any, generators: Generators = ()) -> Any:
    """Call `f(*inputs)`, keep only the inputs, and recompute `f` in the backward pass.

    `f` returns a tensor or a tuple of tensors. Random numbers, for example dropout's, are the same both times: torch's
    CPU generator, the generators of the inputs' CUDA devices and `generators` are rewound for the second call and
    restored after it; Python's `random` is not, and what `f` counts, such as batch norm's means, it counts twice.
    Gradients equal those of plain `f` bit for bit, under autocast and of parameters that `f` uses, too;
    `torch.autograd.grad` reaches only inputs, and `create_graph=True` raises RuntimeError. If no input
    requires a gradient but a parameter in `f` does, `f` is called directly and everything is kept, because nothing
    would trigger the second call. Raises TypeError if `f` returns anything else, or if an argument that is not a tensor
    holds one that requires a gradient.
    """
    if any(_holds_a_variable(x) for x in inputs):
        raise TypeError(
            "checkpointed: a tuple, list or dict among the arguments holds a tensor that requires a gradient, whose "
            "graph the second call would go through again; give each tensor as an argument of its own"
        )
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return f(*inputs)
    return _Checkpointed.apply(f, tuple(generators), *inputs)


class _Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Callable, generators: Generators, *inputs: Any) -> Any:
        ctx.f, ctx.inputs = f, [None if isinstance(x, torch.Tensor) else x for x in inputs]
        ctx.generators = [*_standard(inputs), *generators]
        ctx.states = [generator.get_state() for generator in ctx.generators]
        ctx.autocast = _autocast(inputs)
        ctx.save_for_backward(*(x if isinstance(x, torch.Tensor) else None for x in inputs))
        outputs = f(*inputs)
        for y in outputs if isinstance(outputs, tuple) else (outputs,):
            if not isinstance(y, torch.Tensor):
                raise TypeError(
                    f"checkpointed: f returned a {type(y).__name__}; it returns a tensor or a tuple of them"
                )
        return outputs

    @staticmethod
    @first_only("a checkpointed call")
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        inputs = [
            other if saved is None else saved.detach().requires_grad_(saved.requires_grad)
            for saved, other in zip(ctx.saved_tensors, ctx.inputs, strict=True)
        ]
        with torch.enable_grad():
            outputs = _again(ctx, inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad and g is not None]
        variables = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        of_inputs = {}  # by their identity
        if pairs and not torch.autograd._is_checkpoint_valid():  # a pass to inputs leaves weights alone
            of_inputs = _gradients(pairs, variables)
        elif pairs:
            torch.autograd.backward([y for y, _ in pairs], [g for _, g in pairs])
            of_inputs = {id(x): x.grad for x in variables}
        return None, None, *(of_inputs.get(id(x)) for x in inputs)


def _gradients(pairs: list, variables: list[torch.Tensor]) -> dict[int, torch.Tensor | None]:
    found = torch.autograd.grad([y for y, _ in pairs], variables, [g for _, g in pairs], allow_unused=True)
    return {id(x): g for x, g in zip(variables, found, strict=True)}


def _holds_a_variable(x: Any) -> bool:
    """Whether an argument is not a tensor, but holds one that requires a gradient."""
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (tuple, list)) else ()
    return any(part.requires_grad if isinstance(part, torch.Tensor) else _holds_a_variable(part) for part in parts)


def _autocast(inputs: Sequence[Any]) -> list[torch.autocast]:
    """Return the casting that is on now, for the CPU and the inputs' devices."""
    devices = sorted({"cpu", *(x.device.type for x in inputs if isinstance(x, torch.Tensor))})
    return [
        torch.autocast(name, torch.get_autocast_dtype(name), torch.is_autocast_enabled(name), cache_enabled=False)
        for name in devices
        if torch.amp.is_autocast_available(name)
    ]


def _standard(inputs: Sequence[Any]) -> list[torch.Generator]:
    """Return the generators that layers draw from: the CPU's, and each CUDA device's that holds an input."""
    devices = sorted({x.device.index for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda})
    return [torch.default_generator, *(torch.cuda.default_generators[i] for i in devices)]


def _again(ctx: Any, inputs: list) -> Any:
    """Call `f` again with the same random numbers."""
    now = [generator.get_state() for generator in ctx.generators]
    try:
        for generator, state in zip(ctx.generators, ctx.states, strict=True):
            generator.set_state(state)
        with contextlib.ExitStack() as stack:
            for casting in ctx.autocast:
                stack.enter_context(casting)
            return ctx.f(*inputs)
    finally:
        for generator, state in zip(ctx.generators, now, strict=True):
            generator.set_state(state)


def plan(nbytes: Sequence[int], seconds: Sequence[float], budget: int) -> set[int]:
    """Choose the layers to recompute, at the least cost in seconds, so that the others keep at most `budget` bytes.

    Layer i keeps `nbytes[i]` bytes for backward, or costs `seconds[i]` more. This is a knapsack, solved exactly: for
    the first k layers, drop every set of kept layers that another set beats in both kept bytes and saved seconds. Among
    equally good plans, take the one that keeps least. The caller must subtract from the budget what a recomputed layer
    still keeps: its inputs, and its bytes while its backward pass runs. Raises ValueError for lists of different
    lengths and for negative numbers.
    """
    _check_plan(nbytes, seconds, budget)
    best: list[tuple[int, float, frozenset[int]]] = [(0, 0.0, frozenset())]  # kept bytes, saved seconds, kept layers
    for i, (size, saved) in enumerate(zip(nbytes, seconds, strict=True)):
        more = [(kept + size, total + saved, layers | {i}) for kept, total, layers in best if kept + size <= budget]
        best = _undominated(best + more)
    return set(range(len(nbytes))) - best[-1][2]


def _undominated(options: list[tuple[int, float, frozenset[int]]]) -> list[tuple[int, float, frozenset[int]]]:
    """Return, sorted by kept bytes, the sets that save more seconds than every set that keeps less."""
    found, most = [], -inf
    for option in sorted(options, key=lambda option: (option[0], -option[1])):
        if option[1] > most:
            found.append(option)
            most = option[1]
    return found


def _check_plan(nbytes: Sequence[int], seconds: Sequence[float], budget: int) -> None:
    if len(nbytes) != len(seconds):
        raise ValueError(f"plan: {len(nbytes)} layers have bytes and {len(seconds)} have seconds; each layer has both")
    if not all(value >= 0 for value in (*nbytes, *seconds, budget)):
        raise ValueError("plan: bytes, seconds and the budget are 0 or more")
