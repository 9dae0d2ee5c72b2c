"""What a student's function needs and no message can carry: a network. It is built beside the function, from values.

A harness is called as one of the ranks, `harness(function, *args, comm)`, in the process of the student's code: it
makes the network, calls the function and returns plain values. It holds nothing that is expected; `shown` is how
feedback writes the call of the function.

    student.ranks("train_step", p, lambda rank: ("tied", weights, batches[rank], 0.1, 64), harness="steps")
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from hpcdl.memory import meter
from hpcdl.nn.awkward import MODELS, takes_time
from hpcdl.nn.stage import Stage


def network(name: str, weights: list, comm=None, seconds: float = 0.0):
    """The network of that name with these weights; with `seconds`, what each layer's backward pass takes."""
    model = MODELS[name]()
    with torch.no_grad():
        for param, weight in zip(model.parameters(), weights, strict=True):
            param.copy_(weight)
    return takes_time(model, comm, seconds) if seconds else model


def steps(train_step, name: str, weights: list, batches: list, lr: float, cap_bytes: int, comm):
    """Train with the student's step; the weights and what the steps returned."""
    model = network(name, weights)
    returned = [train_step(model, tuple(batch), lr, comm, cap_bytes) for batch in batches]
    return [param.detach() for param in model.parameters()], returned


def hooks(wrap, name: str, weights: list, batches: list, lr: float, cap_bytes: int, seconds: float, comm):
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


def layer(make, weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, dy: torch.Tensor, comm):
    """One pass through the student's layer, a second apart in the trace: to make it, forward, backward.

    What came of it, the parameters that it holds and their gradients, and the bytes that it keeps when it is made.
    """
    whole = weight.clone(), bias.clone()
    with meter(*whole) as memory:
        made = make(*whole, comm)
        del whole
        kept = memory.live.total
    comm.compute(1.0)
    y = made.forward(x)
    comm.compute(1.0)
    dx = made.backward(dy)
    return y, dx, made.weight, made.bias, made.weight_grad, made.bias_grad, kept


def stages(run_stage, weights: list, batches: list, order: list, rows: list, seconds: dict, comm):
    """Run this rank's stage, linear layers of these weights with tanh between them, once for each batch.

    A batch is its microbatches on the first stage (None elsewhere) and their targets on the last one. What was
    returned, the gradients, the ops that were done, and the most microbatches held at a time.
    """
    layers = [nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype) for weight in weights]
    for linear, weight in zip(layers, weights, strict=True):
        linear.weight.data.copy_(weight)
    module = nn.Sequential(*[part for linear in layers for part in (linear, nn.Tanh())])
    for inputs, targets in batches:
        stage = Stage(
            module,
            rows,
            inputs=inputs,
            targets=targets,
            loss=None if targets is None else squared_error,
            takes=weights[0].shape[1:],
            gives=weights[-1].shape[:1],
            work=lambda op: comm.compute(seconds[op]),
            clock=comm.clock,
        )
        returned = run_stage(stage, [tuple(op) for op in order], list(rows), comm)
    done = [(op, k) for op, k, *_ in stage.events]
    return returned, [linear.weight.grad for linear in layers], done, stage.most


def squared_error(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().sum(1).mean()


class Priced(TorchDispatchMode):
    """Every matrix product takes virtual time: `seconds` for each of its multiplications."""

    def __init__(self, comm, seconds: float):
        super().__init__()
        self.comm, self.seconds = comm, seconds

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler at the first operation, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm):
            self.comm.compute(self.seconds * result.numel() * args[0].shape[-1])
        return result


def measured(function, seconds: float, *args):
    """What the student's function returned, and the most bytes that tensors held at a time; products take time."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    with meter(*tensors) as memory, Priced(args[-1], seconds):
        result = function(*args)
    return result, memory.peak.total


class Harness(NamedTuple):
    run: Callable
    shown: tuple[str, ...]


HARNESSES = {
    "steps": Harness(steps, ("model", "batch", "lr", "comm", "cap_bytes")),
    "hooks": Harness(hooks, ("model", "comm", "cap_bytes")),
    "stages": Harness(stages, ("stage", "order", "rows", "comm")),
    "measured": Harness(measured, ("q", "k", "v", "positions", "comm")),
    "layer": Harness(layer, ("weight", "bias", "comm")),
}
