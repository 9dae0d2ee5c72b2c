"""Refuse second derivatives where a backward pass has none: it would leave its part out without a word."""

import functools
from collections.abc import Callable
from typing import Any

import torch

OTHERWISE = "call backward without create_graph, or compute what is differentiated twice by torch's own operations"


def first_only(what: str, instead: str = OTHERWISE) -> Callable[[Callable], Callable]:
    """Return a decorator of an autograd function's `backward`, which makes it raise RuntimeError under
    `create_graph=True`; `what` names the operation to the user, `instead` the next step.

    torch's `once_differentiable` raises only where the incoming gradients have a graph of their own.
    """

    def decorated(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def once(ctx: Any, *gradients: Any) -> Any:
            if torch.is_grad_enabled():
                raise RuntimeError(f"create_graph=True: {what} has no second derivative; {instead}")
            return backward(ctx, *gradients)

        return once

    return decorated
