"""Harnesses (see `harnesses`) for sharded optimizers, layers and checkpoints, and for recomputation."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from hpcdl.comm.base import Communicator
from hpcdl.memory import Bytes, meter

from .doors import opaque
from .held import Held, watching


def of_its_own(nbytes: Bytes) -> int:
    """Exclude tensors that this rank only read: if ranks are threads, a message is copied from the other rank's
    tensor."""
    return nbytes.total - nbytes["others"]


def optimizing(make: Callable, weights: list, gradients: list, lr: float, comm: Communicator):
    """Run steps of the student's optimizer, which finds each step's gradients in its parameters.

    Returns the weights afterwards, the bytes that it keeps besides them, how many parameters still have a gradient, and
    its attributes m, v and t, None if it has none.
    """
    params = [nn.Parameter(weight.clone()) for weight in weights]
    with meter(*params) as memory:
        beside = Held(memory, (weights, gradients, params, *params), make)
        optimizer = make(params, comm, lr)
        beside.roots.append(optimizer)
        for step in gradients:
            for param, gradient in zip(params, step, strict=True):
                param.grad = gradient.clone()
            optimizer.step()
        left = sum(param.grad is not None for param in params)
        kept = of_its_own(memory.live) - sum(param.nbytes for param in params) + beside.look()
    states = [getattr(optimizer, name, None) for name in "mvt"]
    return [param.detach() for param in params], kept, left, states


class DenseLayer:
    """y = tanh(x W^T); its weights come as a flat vector in each pass, which takes the given virtual seconds."""

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
    make: Callable, widths: list, weights: list, x: torch.Tensor, dy: torch.Tensor, order: list, steps: list,
    seconds: float, measured: bool, again: bool, comm: Communicator,
):  # fmt: skip
    """Run one step (two with `again`) of the student's sharded layers; return output, gradients and shares.

    Before each pass all shares are multiplied, as if by an optimizer: `steps` has the factors of both passes, by layer.

    With `measured`, also the bytes that it keeps after creation, between the passes and after them, and the peaks and
    virtual seconds of both passes.
    """
    whole = [weight.clone() for weight in weights]
    with meter() as memory:
        memory.mark("parameters", *whole)
        beside = Held(memory, (weights, whole, x, dy, order), make)
        layers = [DenseLayer(a, b, opaque(watching(beside, lambda: comm.compute(seconds)))) for a, b in widths]
        beside.known |= {id(layer) for layer in layers}
        model = make(layers, whole, comm)
        whole.clear()
        beside.roots.append(model)
        kept, begin = of_its_own(memory.live) + beside.look(), comm.clock()
        memory.reset_peak()
        scale(model.shares, steps[0])
        y = model.forward(x, list(order))
        forward, middle = of_its_own(memory.highest) + beside.take_most(), comm.clock()
        between = of_its_own(memory.live) + beside.look()
        memory.reset_peak()
        scale(model.shares, steps[1])
        dx = model.backward(dy, list(order))
        backward, end = of_its_own(memory.highest) + beside.take_most(), comm.clock()
        after = of_its_own(memory.live) + beside.look()
    if again:
        scale(model.shares, [1 / factor for factor in steps[1]])
        model.forward(x, list(order))
        scale(model.shares, steps[1])
        model.backward(dy, list(order))
    figures = (kept, forward, backward, between, after, middle - begin, end - middle)
    return y, dx, model.grads, model.shares, figures if measured else None


def scale(shares: list, factors: list) -> None:
    """Multiply the shares in place; what is not a tensor stays, and the check sees it."""
    for mine, factor in zip(shares, factors, strict=False):
        if type(mine) in (torch.Tensor, nn.Parameter):
            mine.detach().mul_(factor)


def block(weights: Sequence[torch.Tensor], dropout: float, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Compute two products with a random mask and other factors between them, for `recomputed`."""
    h = torch.nn.functional.dropout(torch.tanh(x @ weights[0].T), dropout)
    for z in others:
        h = h * z
    return h @ weights[1].T


def recomputed(function: Any, weights: list, inputs: list, dy: torch.Tensor, dropout: float,
    seed: int, later: float, comm: Communicator,
):  # fmt: skip
    """Run one pass through `block` by the student's autograd function. After the forward pass f is `later` times it.

    Returns the output, the gradients of the inputs and the weights, the number of calls of `block` after the forward
    pass and in total, the bytes kept between the passes, and what torch's generator draws after each pass.
    """
    params, calls, factors = [nn.Parameter(weight.clone()) for weight in weights], [0], [1.0]
    inputs = [x.clone().requires_grad_() for x in inputs]
    dy, before = dy.clone(), torch.get_rng_state()

    def f(*inputs):
        calls[0] += 1
        return factors[-1] * block(params, dropout, *inputs)

    torch.manual_seed(seed)
    with meter(*inputs, *params) as memory:
        known = memory.live.total
        y = function.apply(opaque(f), *inputs)
        once, kept = calls[0], memory.live.total - known - y.nbytes
    drawn = [torch.rand(3)]
    factors.append(later)
    grads = returned(y, inputs, dy)
    drawn.append(torch.rand(3))
    torch.set_rng_state(before)
    return y.detach(), [*grads, *(param.grad for param in params)], (once, calls[0]), kept, drawn


def returned(y: torch.Tensor, inputs: Sequence[torch.Tensor], dy: torch.Tensor) -> list[torch.Tensor | None]:
    """Return the gradients that a backward pass returns for inputs, and what it has added to theirs by itself."""
    grads = torch.autograd.grad(y, inputs, dy, allow_unused=True)
    return [g if g is None or x.grad is None else g + x.grad for g, x in zip(grads, inputs, strict=True)]


def spoiled(
    function: Any, weight: torch.Tensor, x: torch.Tensor, z: torch.Tensor, which: int, factor: float, comm: Communicator
):
    """Multiply an input, x or z, between the passes of the student's autograd function, unless the factor is 1.

    Returns the error of the backward pass, or "", and the gradients of the inputs and the weight.
    """
    x, z, weight = x.clone().requires_grad_(), z.clone().requires_grad_(), nn.Parameter(weight.clone())
    y = function.apply(opaque(lambda x, z: torch.tanh(x @ weight.T) * z), x, z)
    if factor != 1:
        with torch.no_grad():
            (x, z)[which].mul_(factor)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return str(error), None, None, None
    return "", x.grad, z.grad, weight.grad


def copied(value: Any) -> Any:
    """Return a state with all its tensors copied, however deep in dicts and lists."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, (list, tuple)) else value


class LoggedDisk:
    """Files as dicts, beginning with `files`; operations on them are logged in a book.

    Its methods expose neither files nor book, so every read is logged.
    """

    __slots__ = ("read", "rename", "write")

    def __init__(self, files: dict, note: Callable):
        files = dict(files)

        def write(name: str, content: dict) -> None:
            files[name] = copied(content)
            note("write", name, files[name])

        def rename(old: str, new: str) -> None:
            if old not in files:
                raise FileNotFoundError(f"there is no file {old!r} to rename")
            files[new] = files.pop(old)
            note("rename", old, new)

        def read(name: str) -> dict:
            if name not in files:
                raise FileNotFoundError(f"there is no file {name!r}")
            content = files[name]
            if content is None:
                raise OSError(f"{name!r} is half a file: who wrote it was killed")
            note("read", name)
            return copied(content)

        self.write, self.rename, self.read = opaque(write), opaque(rename), opaque(read)


def saving(
    save: Callable, files: dict, step: int, state: dict, n: int, seconds: float, comm: Communicator, book: Any
) -> None:
    """Let the student's `save` work on a disk. The entries are write, rename, and at the end return."""
    save(LoggedDisk(files, book.note), step, state, n, comm)
    book.note("return")


def loading(load: Callable, files: dict, comm: Communicator, book: Any):
    """Return the result of the student's `load`, and the bytes of the memory in which its tensors lie.

    The entries are the files that it reads.
    """
    result = load(LoggedDisk(files, book.note), comm)
    state = result[1] if type(result) in (tuple, list) and len(result) == 2 else None
    tensors = [x for x in state.values() if type(x) is torch.Tensor] if type(state) is dict else []
    memory = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return result, sum(memory.values())
