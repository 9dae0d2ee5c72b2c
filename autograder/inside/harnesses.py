"""What a student's function needs and no message can carry: a network. It is built beside the function, from values.

A harness is called as one of the ranks, `harness(function, *args, comm)`, in the process of the student's code: it
makes the network, calls the function and returns plain values. It holds nothing that is expected; `shown` is how
feedback writes the call of the function.

    student.ranks("train_step", p, lambda rank: ("tied", weights, batches[rank], 0.1, 64), harness="steps")
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from hpcdl.comm.base import Communicator
from hpcdl.nn.awkward import MODELS, takes_time


def network(name: str, weights: list, comm: "Communicator | None" = None, seconds: float = 0.0):
    """The network of that name with these weights; with `seconds`, what each layer's backward pass takes."""
    model = MODELS[name]()
    with torch.no_grad():
        for param, weight in zip(model.parameters(), weights, strict=True):
            param.copy_(weight)
    return takes_time(model, comm, seconds) if comm and seconds else model


def steps(
    train_step: Callable, name: str, weights: list, batches: list, lr: float, cap_bytes: int, comm: "Communicator"
):
    """Train with the student's step; the weights and what the steps returned."""
    model = network(name, weights)
    returned = [train_step(model, tuple(batch), lr, comm, cap_bytes) for batch in batches]
    return [param.detach() for param in model.parameters()], returned


def hooks(
    wrap: Callable,
    name: str,
    weights: list,
    batches: list,
    lr: float,
    cap_bytes: int,
    seconds: float,
    comm: "Communicator",
):
    """Train with the student's wrapper; the weights, and the gradients of the last step (None where there is none)."""
    model = network(name, weights, comm, seconds)
    ddp = wrap(model, comm, cap_bytes)
    for x, y in batches:
        model.zero_grad()
        cross_entropy(ddp(x), y).backward()
        ddp.synchronize()
        with torch.no_grad():
            for param in model.parameters():
                if param.grad is not None:
                    param -= lr * param.grad
    return [param.detach() for param in model.parameters()], [param.grad for param in model.parameters()]


class Harness(NamedTuple):
    run: Callable
    shown: tuple[str, ...]


HARNESSES = {
    "steps": Harness(steps, ("model", "batch", "lr", "comm", "cap_bytes")),
    "hooks": Harness(hooks, ("model", "comm", "cap_bytes")),
}
