"""Activation checkpointing: a layer's inputs are kept for backward, and the rest is computed once more.

Chen et al. 2016, "Training deep nets with sublinear memory cost".
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch

Generators = Sequence[torch.Generator]


def checkpointed(f: Callable, *inputs: Any, generators: Generators = ()) -> Any:
    """`f(*inputs)`, of whose forward pass only `inputs` are kept; its backward pass calls `f` once more.

    `f` returns a tensor or a tuple of tensors. What it draws, as dropout does, is the same both times: torch's
    generator of the CPU, those of the inputs' CUDA devices and `generators` are set back for the second call, and
    afterwards stand as if there had been none. Gradients are those of `f` to the bit, also of parameters that `f` uses;
    `torch.autograd.grad` reaches inputs alone. Where no input requires a gradient, but a parameter in `f` does, it is
    `f` itself that is called, and all is kept: there is nothing to begin a second call with. Raises TypeError where `f`
    returns anything else.
    """
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return f(*inputs)
    return _Checkpointed.apply(f, tuple(generators), *inputs)


class _Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Callable, generators: Generators, *inputs: Any) -> Any:
        ctx.f, ctx.inputs = f, [None if isinstance(x, torch.Tensor) else x for x in inputs]
        ctx.generators = [*_standard(inputs), *generators]
        ctx.states = [generator.get_state() for generator in ctx.generators]
        ctx.save_for_backward(*(x if isinstance(x, torch.Tensor) else None for x in inputs))
        outputs = f(*inputs)
        for y in outputs if isinstance(outputs, tuple) else (outputs,):
            if not isinstance(y, torch.Tensor):
                raise TypeError(
                    f"checkpointed: f returned a {type(y).__name__}; it returns a tensor or a tuple of them"
                )
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        inputs = [
            other if saved is None else saved.detach().requires_grad_(saved.requires_grad)
            for saved, other in zip(ctx.saved_tensors, ctx.inputs, strict=True)
        ]
        with torch.enable_grad():
            outputs = _again(ctx, inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad and g is not None]
        if pairs:
            torch.autograd.backward([y for y, _ in pairs], [g for _, g in pairs])
        return None, None, *(x.grad if isinstance(x, torch.Tensor) else None for x in inputs)


def _standard(inputs: Sequence[Any]) -> list[torch.Generator]:
    """Those from which layers draw: of the CPU, and of every CUDA device that has an input."""
    devices = sorted({x.device.index for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda})
    return [torch.default_generator, *(torch.cuda.default_generators[i] for i in devices)]


def _again(ctx: Any, inputs: list) -> Any:
    """`f` once more, with what it drew the first time."""
    now = [generator.get_state() for generator in ctx.generators]
    try:
        for generator, state in zip(ctx.generators, ctx.states, strict=True):
            generator.set_state(state)
        return ctx.f(*inputs)
    finally:
        for generator, state in zip(ctx.generators, now, strict=True):
            generator.set_state(state)


def plan(nbytes: Sequence[int], seconds: Sequence[float], budget: int) -> set[int]:
    """The layers to recompute so that what the others keep is at most `budget` bytes, in the fewest seconds.

    Layer i keeps `nbytes[i]` bytes for backward, or costs `seconds[i]` more. A knapsack, solved exactly: of all that k
    layers may keep only those sets count that are not worse in both, kept bytes and saved seconds, than another. Of
    equally good plans the one that keeps least. What a recomputed layer still keeps, its inputs, and its bytes while
    its backward pass runs, are the caller's to take off the budget. Raises ValueError for lists of other lengths and
    for negative numbers.
    """
    _check_plan(nbytes, seconds, budget)
    best: list[tuple[int, float, frozenset[int]]] = [(0, 0.0, frozenset())]  # kept bytes, saved seconds, kept layers
    for i, (size, saved) in enumerate(zip(nbytes, seconds, strict=True)):
        more = [(kept + size, total + saved, layers | {i}) for kept, total, layers in best if kept + size <= budget]
        best = _undominated(best + more)
    return set(range(len(nbytes))) - best[-1][2]


def _undominated(options: list[tuple[int, float, frozenset[int]]]) -> list[tuple[int, float, frozenset[int]]]:
    """By kept bytes, those that save more than every one that keeps less."""
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
