"""Harnesses: build what a student's function needs but no message can carry, such as a network, and observe what only
its process can see.

A harness runs as one of the ranks, `harness(function, *args, comm)`, in the student's process: it creates what is
needed, calls the function and returns plain values. It holds no expected values; `shown` is how feedback writes the
call.

    student.ranks("train_step", p, lambda rank: ("tied", weights, batches[rank], 0.1, 64), harness="steps")
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from hpcdl.comm.base import Communicator
from hpcdl.memory import meter
from hpcdl.nn.awkward import MODELS, takes_time
from hpcdl.nn.stage import Stage

from .book import of_kind
from .code_harnesses import Calls, instructions, launched, loads, reads, swept
from .consistency_harnesses import asynchronous, comm_first, downpour
from .dtensor_harnesses import fully_sharded, planned, state_in, state_out, timed
from .framework_harnesses import (
    broadcasting,
    horovod,
    horovod_out_of_order,
    in_group,
    momenta,
    ray_loop,
    resumed,
    resuming,
    with_gpus,
)
from .mending_harness import did, mending
from .scaling_harnesses import loss_scaling
from .shard_harnesses import gathered, loading, optimizing, recomputed, saving, spoiled
from .stage_steps import Steps, followed
from .tensor_harnesses import averaging, descending, in_memory, remembered, share_memory, taken, watching


def network(name: str, weights: list):
    """Return the network of that name with these weights."""
    model = MODELS[name]()
    with torch.no_grad():
        for param, weight in zip(model.parameters(), weights, strict=True):
            param.copy_(weight)
    return model


def steps(
    train_step: Callable, name: str, weights: list, batches: list, lr: float, cap_bytes: int, comm: "Communicator"
):
    """Train with the student's step; return the weights and the steps' results."""
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
    """Train with the student's wrapper; return the weights, and the last step's gradients (None if missing).

    `seconds` is the time of each layer's backward pass.
    """
    model = network(name, weights)
    if seconds:
        takes_time(model, comm, seconds)
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


def once(function: Callable, values: list, *rest: Any, **kwargs: Any):
    """Pass the values as a one-time iterator, like `model.parameters()`."""
    return function(iter(values), *rest, **kwargs)


def once_alone(function: Callable, values: list, *rest: Any):
    """Pass the values as a one-time iterator to a function without a communicator."""
    return function(iter(values), *rest[:-1])


def giants(make_buckets: Callable, numels: list, cap: int, comm: Communicator) -> list[list[int]]:
    """Return the places, in an answer's buckets, of float32 parameters of these sizes; they have no memory."""
    params = [torch.empty(n, device="meta") for n in numels]
    places = {id(param): i for i, param in enumerate(params)}
    return [[places.get(id(param), -1) for param in bucket] for bucket in make_buckets(params, cap)]


def leaves_chance_alone(function: Callable, *args: Any) -> bool:
    """Return whether the call left torch's global generator unchanged; the communicator is not passed on."""
    before = torch.get_rng_state()
    function(*args[:-1])
    return torch.equal(before, torch.get_rng_state())


def when(function: Callable, x: torch.Tensor, comm: Communicator, **kwargs: Any) -> float:
    """Return when the function returns, in virtual seconds."""
    function(x, comm, **kwargs)
    return comm.clock()


def layer(
    make: Callable, weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, dy: torch.Tensor, comm: Communicator
):
    """Run one pass through the student's layer; creation, forward and backward are a second apart in the trace.

    Returns the result, the layer's parameters and gradients, the gradients of a second pass (the rows of x in reverse),
    whether its parameters have separate memory, and the bytes that it keeps after creation, without room for gradients.
    """
    whole = weight.clone(), bias.clone()
    with meter(*whole) as memory:
        made = make(*whole, comm)
        own = not any(share_memory(mine, given) for mine in (made.weight, made.bias) for given in whole)
        del whole
        room = (getattr(made, name, None) for name in ("weight_grad", "bias_grad"))
        kept = memory.live.total - sum(x.nbytes for x in room if isinstance(x, torch.Tensor))
    comm.compute(1.0)
    y = made.forward(x)
    comm.compute(1.0)
    dx = made.backward(dy)
    first = y, dx, made.weight, made.bias, made.weight_grad, made.bias_grad
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in first]
    comm.compute(1.0)
    made.forward(x.flip(0))
    made.backward(dy)
    return *copies, made.weight_grad, made.bias_grad, own, kept


def stages(
    run_stage: Callable, weights: list, batches: list, order: list, rows: list, seconds: dict, comm: Communicator,
    book: Any,
):  # fmt: skip
    """Run this rank's stage, linear layers of these weights with tanh between them, once for each batch.

    A batch is its microbatches on the first stage (None elsewhere) and their targets on the last one. Returns the
    function's result and the gradients. The entries are the ops of each batch, after its "begin".
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
        )
        book.note("begin")
        returned = run_stage(Steps(stage, book.note), [tuple(op) for op in order], list(rows), comm)
    return returned, [linear.weight.grad for linear in layers]


def squared_error(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().sum(1).mean()


PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "mv": 0,
    "dot": 0,
    "addmm": 1,
    "baddbmm": 1,
    "addmv": 1,
}  # and which one is the left factor


class Priced(TorchDispatchMode):
    """Makes every matrix product take virtual time, `seconds` per multiplication; `held` lists `live()` before each."""

    def __init__(self, comm: Communicator, seconds: float, live: Callable[[], int]):
        super().__init__()
        self.comm, self.seconds, self.live, self.held = comm, seconds, live, list[int]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler at the first operation, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        factor = PRODUCTS.get(func.overloadpacket.__name__)
        if factor is not None:
            self.held.append(self.live())
        result = func(*args, **(kwargs or {}))
        if factor is not None:
            self.comm.compute(self.seconds * result.numel() * args[factor].shape[-1])
        return result


def measured(function: Callable, seconds: float, *args: Any):
    """Return the student function's result, the peak bytes of tensors, and their bytes before each matrix product;
    products take time."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    with meter(*tensors) as memory, Priced(args[-1], seconds, lambda: memory.live.total) as priced:
        result = function(*args)
    return result, memory.peak.total, priced.held


def peak(function: Callable, *args: Any):
    """Return the student function's result without a communicator, the peak bytes of tensors, and how many of torch's
    operators it called."""
    *given, _ = args
    with meter(*(arg for arg in given if isinstance(arg, torch.Tensor))) as memory, Calls() as calls:
        result = function(*given)
    return result, memory.peak.total, calls.count


class Harness(NamedTuple):
    """A harness, and how feedback writes the call.

    With `booked` it gets a `book` (see `book`), and its result includes the entries; `takes` computes the entries'
    virtual seconds by kind from the arguments. `works`: whether what it hands out lets virtual time pass.
    """

    run: Callable
    shown: tuple[str, ...]
    booked: Callable[[Any, list], Any] | None = None
    takes: Callable[[tuple], dict[str, float]] = lambda args: {}
    works: bool = False


HARNESSES = {
    "steps": Harness(steps, ("model", "batch", "lr", "comm", "cap_bytes")),
    "hooks": Harness(hooks, ("model", "comm", "cap_bytes"), works=True),
    "once": Harness(once, ("iter(params)", "comm")),
    "once_alone": Harness(once_alone, ("iter(params)", "cap_bytes")),
    "giants": Harness(giants, ("params", "cap_bytes")),
    "leaves_chance_alone": Harness(leaves_chance_alone, ("n", "rank", "size", "epoch", "seed")),
    "when": Harness(when, ("x", "comm")),
    "launched": Harness(launched, ("...",)),
    "loads": Harness(loads, ("x", "n", "seed", "block")),
    "reads": Harness(reads, ("memory", "x.shape", "w.shape", "stride", "padding")),
    "swept": Harness(swept, ("...",)),
    "stages": Harness(stages, ("stage", "order", "rows", "comm"), followed, lambda args: args[4]),
    "measured": Harness(measured, ("q", "k", "v", "positions", "comm"), works=True),
    "peak": Harness(peak, ("q", "k", "v", "block")),
    "instructions": Harness(instructions, ("...",)),
    "optimizing": Harness(optimizing, ("params", "comm", "lr")),
    "gathered": Harness(gathered, ("layers", "weights", "comm"), works=True),
    "recomputed": Harness(recomputed, ("f", "x", "z")),
    "spoiled": Harness(spoiled, ("f", "x")),
    "loss_scaling": Harness(loss_scaling, ("gradients", "update")),
    "saving": Harness(
        saving, ("disk", "step", "state", "n", "comm"), lambda _, entries: entries, lambda args: {"write": args[4]}
    ),
    "loading": Harness(
        loading, ("disk", "comm"), lambda found, entries: (found, [name for _, name, *_ in of_kind(entries, "read")])
    ),
    "asynchronous": Harness(asynchronous, ("comm", "grad", "w", "staleness", "steps", "lr"), works=True),
    "downpour": Harness(downpour, ("comm", "servers", "grad", "w", "n_fetch", "n_push", "steps", "lr"), works=True),
    "comm_first": Harness(comm_first, ("comm", "s", "y", "g")),
    "horovod": Harness(horovod, ("optimizer", "comm", "backward_passes_per_step"), works=True),
    "horovod_out_of_order": Harness(horovod_out_of_order, ("optimizer", "comm")),
    "broadcasting": Harness(broadcasting, ("params", "comm", "root_rank")),
    "with_gpus": Harness(with_gpus, ("env",)),
    "momenta": Harness(momenta, ("optimizer", "comm", "root_rank")),
    "resuming": Harness(
        resuming, ("model", "optimizer", "loss_sum", "batches", "disk", "comm"), resumed, lambda args: {"write": 1.0}
    ),
    "mending": Harness(mending, ("...", "comm"), did, lambda args: {"write": 1.0}),
    "in_group": Harness(in_group, ("env", "model", "x", "y", "epochs", "batch", "lr")),
    "ray_loop": Harness(ray_loop, ("config", "train")),
    "fully_sharded": Harness(fully_sharded, ("model", "mesh"), timed, lambda _: dict.fromkeys(("begin", "end"), 1.0)),
    "state_out": Harness(state_out, ("model",)),
    "state_in": Harness(state_in, ("model", "state")),
    "planned": Harness(planned, ("model",), timed, lambda _: dict.fromkeys(("forward", "backward", "end"), 1.0)),
    "layer": Harness(layer, ("weight", "bias", "comm"), works=True),
    "in_memory": Harness(in_memory, ("...",)),
    "averaging": Harness(averaging, ("xs",)),
    "remembered": Harness(remembered, ("params", "comm")),
    "descending": Harness(descending, ("w", "lr")),
    "watching": Harness(watching, ("params", "ready")),
    "taken": Harness(taken, ("n", "size", "times", "order")),
}
