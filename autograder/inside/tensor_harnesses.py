"""Harnesses (see `harnesses`) for what no message carries: a tensor's memory layout, calls of hooks, lazy iteration."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from hpcdl.comm.base import Communicator

from .doors import opaque


def by_rows(x: torch.Tensor) -> torch.Tensor:
    """Copy into separate memory, row by row."""
    return x.clone(memory_format=torch.contiguous_format)


def by_columns(x: torch.Tensor) -> torch.Tensor:
    """Copy with the first axis as the fastest one in memory."""
    turned = tuple(reversed(range(x.dim())))
    return by_rows(x.permute(turned)).permute(turned)


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    """Copy into every second element of a buffer, from the second one; other numbers in between."""
    return torch.stack((-1 - x, x), dim=-1)[..., 1]


LAYOUTS = {"rows": by_rows, "columns": by_columns, "gaps": with_gaps}


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors share memory; empty ones never do."""
    mine, other = a.untyped_storage(), b.untyped_storage()
    return mine.nbytes() > 0 and mine.data_ptr() == other.data_ptr()


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    """Copy all bytes of the memory that a tensor lies in, those between its elements too."""
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).clone()


def in_memory(function: Callable, layout: str, args: list, comm: Communicator):
    """Call the function with its tensors in a layout; return its result, and which of them it is a view of.

    A view shares a tensor's memory, and that memory is as before: no copy has been put into it.
    """
    given = [LAYOUTS[layout](arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    tensors = [arg for arg in given if isinstance(arg, torch.Tensor)]
    memories = list(map(bytes_of, tensors))
    result = function(*given)
    shared = [isinstance(result, torch.Tensor) and share_memory(result, arg) for arg in tensors]
    as_before = [torch.equal(bytes_of(x), old) for x, old in zip(tensors, memories, strict=True)]
    return result, [a and b for a, b in zip(shared, as_before, strict=True)]


def averaging(function: Callable, values: list, together: str, comm: Communicator):
    """Call the function with a list of tensors: each in separate memory, or all as "rows" or "columns" of one.

    Returns the tensors' final values, the content of each memory, and whether two tensors newly share memory.
    """
    if together == "rows":
        xs = list(torch.stack(values))
    elif together == "columns":
        xs = list(torch.stack(values, dim=-1).unbind(-1))
    else:
        xs = [value.clone() for value in values]
    windows, given = [x.detach() for x in xs], list(xs)  # a window shows the memory, whatever happens to its tensor
    function(given)
    met = any(a.numel() and a.data_ptr() == b.data_ptr() for a, b in itertools.combinations(xs, 2))
    return [x.detach() for x in xs], windows, met


def remembered(function: Callable, values: list, comm: Communicator, **kwargs: Any) -> list[torch.Tensor]:
    """Call the function with tensors that require gradients; return what the memory that they had before now holds."""
    params = [value.clone().requires_grad_() for value in values]
    memory = [param.detach() for param in params]
    function(params, comm, **kwargs)
    return memory


def descending(function: Callable, start: torch.Tensor, targets: list, lr: float, comm: Communicator):
    """Run steps of the function on |w - target|², with a target each; return w after each step, and the final w itself.

    Returns also whether w.grad is None after every step.
    """
    w, path = start.clone().requires_grad_(), []
    memory, forgotten = w.data_ptr(), True
    for target in targets:
        (w - target).square().sum().backward()
        function(w, lr)
        path.append(w.detach().clone())
        forgotten = forgotten and w.grad is None
    return path, w.requires_grad, w.is_leaf, w.data_ptr() == memory, forgotten


def watching(function: Callable, weights: list, unused: list, passes: int, comm: Communicator):
    """Run backward passes through a chain of layers with the function's hooks, except the `unused` layers.

    Returns the calls of `ready` after registration and after each pass: (argument, whether that parameter had the
    gradient of this pass, the layers whose outputs had gradients in this pass).
    """
    params, calls, reached = [weight.clone().requires_grad_() for weight in weights], list[tuple](), list[int]()

    def ready(i: Any) -> None:
        known = type(i) is int and 0 <= i < len(params)
        there = params[i].grad if known else None
        calls.append((i if known else type(i).__name__, None if there is None else there.clone(), list(reached)))

    def come_to(i: int, gradient: torch.Tensor) -> None:
        reached.append(i)

    function(params, opaque(ready))
    heard = [[(i, there is not None, above) for i, there, above in calls]]
    for _ in range(passes):
        calls.clear()
        reached.clear()
        y = torch.ones(3, dtype=torch.float64)
        for i, param in enumerate(params):
            param.grad = None
            if i not in unused:
                y = torch.tanh(param * y)
                y.register_hook(opaque(partial(come_to, i)))
        y.sum().backward()
        heard.append([(i, there is not None and same(there, params[i].grad), above) for i, there, above in calls])
    return heard


def same(there: torch.Tensor, gradient: torch.Tensor | None) -> bool:
    """Return whether what a call of `ready` found is the gradient that the pass has left."""
    return gradient is not None and torch.equal(there, gradient)


def taken(function: Callable, orders: list, size: int, few: int, comm: Communicator):
    """Return the first few batches of epochs with these orders, and the number of orders requested before the first and
    by each of them."""
    asked = [0]

    def order(n: int) -> torch.Tensor:
        asked[0] += 1
        return orders[asked[0] - 1].clone()

    batches = function(len(orders[0]), size, len(orders), opaque(order))
    before, found, counts = asked[0], [], []
    for batch in itertools.islice(batches, few):
        found.append(batch)
        counts.append(asked[0])
    return found, before, counts
