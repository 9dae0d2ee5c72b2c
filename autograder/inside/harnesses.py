"""What a student's function needs and no message can carry, such as a network; and what only its process can see.

A harness is called as one of the ranks, `harness(function, *args, comm)`, in the process of the student's code: it
makes what is needed, calls the function and returns plain values. It holds nothing that is expected; `shown` is how
feedback writes the call of the function.

    student.ranks("train_step", p, lambda rank: ("tied", weights, batches[rank], 0.1, 64), harness="steps")
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from hpcdl.comm.base import Communicator
from hpcdl.memory import Bytes, meter
from hpcdl.nn.awkward import MODELS, takes_time
from hpcdl.nn.stage import Stage


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


def once(function: Callable, values: list, *rest: Any, **kwargs: Any):
    """Give the values one by one, as `model.parameters()` does: they can be gone through once."""
    return function(iter(values), *rest, **kwargs)


def once_alone(function: Callable, values: list, *rest: Any):
    """The same for a function that has no use for a communicator."""
    return function(iter(values), *rest[:-1])


def leaves_chance_alone(function: Callable, *args: Any) -> bool:
    """Whether torch's global generator stands where it stood before the call; the communicator is not passed on."""
    before = torch.get_rng_state()
    function(*args[:-1])
    return torch.equal(before, torch.get_rng_state())


def when(function: Callable, x: torch.Tensor, comm: Communicator, **kwargs: Any) -> float:
    """When the function returns, in virtual seconds."""
    function(x, comm, **kwargs)
    return comm.clock()


def loads(launch: Callable, x: torch.Tensor, n: int, seed: int, block: int, comm: Communicator) -> int:
    """How many of x's numbers, from the first on, a Triton kernel reads; 0 on a GPU, where nobody tells."""
    from triton.runtime.interpreter import InterpreterBuilder

    read, load = [0], InterpreterBuilder.create_masked_load

    def watched(self, pointers, mask, *rest):
        places = (pointers.data[mask.data].astype("int64") - x.data_ptr()) // x.element_size()
        read.extend(place + 1 for place in places.tolist() if 0 <= place < len(x))
        return load(self, pointers, mask, *rest)

    InterpreterBuilder.create_masked_load = watched
    try:
        launch(x, n, seed, block)
    finally:
        InterpreterBuilder.create_masked_load = load
    return max(read)


def layer(
    make: Callable, weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, dy: torch.Tensor, comm: Communicator
):
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


def stages(
    run_stage: Callable, weights: list, batches: list, order: list, rows: list, seconds: dict, comm: Communicator
):
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


def of_its_own(nbytes: Bytes) -> int:
    """Without what this rank only read: where ranks are threads, a message is copied from the other rank's tensor."""
    return nbytes.total - nbytes["others"]


def optimizing(make: Callable, weights: list, gradients: list, lr: float, comm: Communicator):
    """Steps of the student's optimizer, which finds each step's gradients in its parameters.

    The weights afterwards, the bytes that it keeps beside them, and how many parameters still have a gradient.
    """
    params = [nn.Parameter(weight.clone()) for weight in weights]
    with meter(*params) as memory:
        optimizer = make(params, comm, lr)
        for step in gradients:
            for param, gradient in zip(params, step, strict=True):
                param.grad = gradient.clone()
            optimizer.step()
        left = sum(param.grad is not None for param in params)
        kept = of_its_own(memory.live) - sum(param.nbytes for param in params)
    return [param.detach() for param in params], kept, left


class DenseLayer:
    """y = tanh(x W^T), whose weights come as a flat vector in each pass, which takes so many virtual seconds."""

    def __init__(self, inputs: int, outputs: int, work: Callable[[], None] = lambda: None):
        self.shape, self.work, self.kept = (outputs, inputs), work, list[tuple]()

    def forward(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.work()
        y = torch.tanh(x @ w.view(self.shape).T)
        self.kept.append((x, y))
        return y

    def backward(self, w: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.work()
        x, y = self.kept.pop()
        ds = dy * (1 - y * y)
        return ds @ w.view(self.shape), (ds.T @ x).flatten()


def gathered(
    make: Callable, widths: list, weights: list, x: torch.Tensor, dy: torch.Tensor, order: list, seconds: float,
    measured: bool, comm: Communicator,
):  # fmt: skip
    """One step of the student's sharded layers: output, gradients and shares.

    With `measured` also the bytes that it keeps when it is made, the peaks of both passes and their virtual seconds.
    """
    layers = [DenseLayer(*pair, lambda: comm.compute(seconds)) for pair in widths]
    whole = [weight.clone() for weight in weights]
    with meter() as memory:
        memory.mark("parameters", *whole)
        model = make(layers, whole, comm)
        whole.clear()
        kept, begin = of_its_own(memory.live), comm.clock()
        memory.reset_peak()
        y = model.forward(x, list(order))
        forward, middle = of_its_own(memory.highest), comm.clock()
        memory.reset_peak()
        dx = model.backward(dy, list(order))
        backward, end = of_its_own(memory.highest), comm.clock()
    figures = (kept, forward, backward, middle - begin, end - middle)
    return y, dx, model.grads, model.shares, figures if measured else None


def block(weights: list, x: torch.Tensor, z: torch.Tensor, dropout: float) -> torch.Tensor:
    """What `recomputed` recomputes: two products with a random mask between them."""
    h = torch.nn.functional.dropout(torch.tanh(x @ weights[0].T), dropout)
    return (h * z) @ weights[1].T


def recomputed(function: Callable, weights: list, x: torch.Tensor, z: torch.Tensor, dy: torch.Tensor, dropout: float,
    seed: int, comm: Communicator,
):  # fmt: skip
    """One pass through `block` by the student's autograd function.

    The output, the gradients of x, z and the weights, the calls of `block` after the forward pass and after all, the
    bytes kept between the passes, and what torch's generator draws after each pass.
    """
    params, calls = [nn.Parameter(weight.clone()) for weight in weights], [0]
    x, z, dy, before = x.clone().requires_grad_(), z.clone(), dy.clone(), torch.get_rng_state()

    def f(*inputs):
        calls[0] += 1
        return block(params, *inputs, dropout)

    torch.manual_seed(seed)
    with meter(x, z, *params) as memory:
        known = memory.live.total
        y = function.apply(f, x, z)
        once, kept = calls[0], memory.live.total - known - y.nbytes
    drawn = [torch.rand(3)]
    y.backward(dy)
    drawn.append(torch.rand(3))
    torch.set_rng_state(before)
    return y.detach(), [x.grad, z.grad, *(param.grad for param in params)], (once, calls[0]), kept, drawn


class Disk:
    """Files as dicts, those of `files` to begin with; it writes down what is done, with its virtual time."""

    def __init__(self, files: dict, comm: Communicator, seconds: float):
        self._files, self._comm, self._seconds = dict(files), comm, seconds
        self._log: list[tuple] = []

    def write(self, name: str, content: dict) -> None:
        copy = {key: x.detach().clone() if isinstance(x, torch.Tensor) else x for key, x in content.items()}
        begin = self._comm.clock()
        self._comm.compute(self._seconds)
        self._files[name] = copy
        self._log.append(("write", name, copy, begin, self._comm.clock()))

    def rename(self, old: str, new: str) -> None:
        if old not in self._files:
            raise FileNotFoundError(f"there is no file {old!r} to rename")
        self._files[new] = self._files.pop(old)
        self._log.append(("rename", old, new, self._comm.clock(), self._comm.clock()))

    def read(self, name: str) -> dict:
        if name not in self._files:
            raise FileNotFoundError(f"there is no file {name!r}")
        content = self._files[name]
        if content is None:
            raise OSError(f"{name!r} is half a file: who wrote it was killed")
        self._log.append(("read", name, None, self._comm.clock(), self._comm.clock()))
        return {key: x.clone() if isinstance(x, torch.Tensor) else x for key, x in content.items()}


def saving(save: Callable, files: dict, step: int, state: dict, n: int, seconds: float, comm: Communicator):
    """What the student's `save` does to the disk: ("write", name, content, begin, end), ("rename", old, new, ...)."""
    disk = Disk(files, comm, seconds)
    save(disk, step, state, n, comm)
    return disk._log


def loading(load: Callable, files: dict, comm: Communicator):
    """What the student's `load` returns, and the names of the files that it reads."""
    disk = Disk(files, comm, 0.0)
    found = load(disk, comm)
    return found, [name for op, name, *_ in disk._log if op == "read"]


def squared_error(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().sum(1).mean()


class Priced(TorchDispatchMode):
    """Every matrix product takes virtual time: `seconds` for each of its multiplications."""

    def __init__(self, comm: Communicator, seconds: float):
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


def measured(function: Callable, seconds: float, *args: Any):
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
    "once": Harness(once, ("iter(params)", "comm")),
    "once_alone": Harness(once_alone, ("iter(params)", "cap_bytes")),
    "leaves_chance_alone": Harness(leaves_chance_alone, ("n", "rank", "size", "epoch", "seed")),
    "when": Harness(when, ("x", "comm")),
    "loads": Harness(loads, ("x", "n", "seed", "block")),
    "stages": Harness(stages, ("stage", "order", "rows", "comm")),
    "measured": Harness(measured, ("q", "k", "v", "positions", "comm")),
    "optimizing": Harness(optimizing, ("params", "comm", "lr")),
    "gathered": Harness(gathered, ("layers", "weights", "comm")),
    "recomputed": Harness(recomputed, ("f", "x", "z")),
    "saving": Harness(saving, ("disk", "step", "state", "n", "comm")),
    "loading": Harness(loading, ("disk", "comm")),
    "layer": Harness(layer, ("weight", "bias", "comm")),
}
