"""Harnesses (see `harnesses`) of trainings with torch's DDP, Horovod's interface and Ray's, on our ranks.

torch.distributed is real: DDP runs in the student's process, over a process group whose messages the
grader's machine carries (`hpcdl.training.process_group`).
"""

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm.base import Communicator
from hpcdl.nn.awkward import MODELS, takes_time

from .book import Moment, of_kind
from .doors import opaque
from .shard_harnesses import copied

MOMENTUM = 0.9


def network(name: str, weights: list) -> nn.Module:
    """Return the network of that name in float64, with these weights."""
    return filled(MODELS[name]().double(), weights)


def filled(model: Any, weights: list) -> Any:
    with torch.no_grad():
        for param, weight in zip(model.parameters(), weights, strict=True):
            param.copy_(weight)
    return model


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [param.detach().clone() for param in model.parameters()]


# Horovod's interface


def horovod(make: Callable, name: str, weights: list, steps: list, lr: float, seconds: float, comm: Communicator):
    """Run steps of the student's optimizer, each with some passes of (x, y); return the weights after them.

    `seconds` is the time of each layer's backward pass. The optimizer has two groups of parameters.
    """
    model = network(name, weights)
    if seconds:
        takes_time(model, comm, seconds)
    first, *others = model.parameters()
    groups = [{"params": [first]}, {"params": others}]
    optimizer = make(torch.optim.SGD(groups, lr, momentum=MOMENTUM), comm, len(steps[0]))
    for passes in steps:
        optimizer.zero_grad()
        for x, y in passes:
            (cross_entropy(model(x), y) / len(passes)).backward()
        optimizer.step()
    return weights_of(model)


def horovod_out_of_order(make: Callable, name: str, weights: list, x: Any, y: Any, comm: Communicator):
    """Call `zero_grad` between a backward pass and its step, and again after the step; return the types of the
    errors."""
    model = network(name, weights)
    optimizer = make(torch.optim.SGD(model.parameters(), 0.1), comm, 1)
    cross_entropy(model(x), y).backward()
    raised = ""
    try:
        optimizer.zero_grad()
    except Exception as error:
        raised = named(error)
    else:
        return raised, ""
    optimizer.step()
    try:
        optimizer.zero_grad()
    except Exception as error:
        return raised, type(error).__name__
    return raised, ""


def named(error: Exception) -> str:
    """Return "AssertionError" for Python's own and for classes derived from it, and the name of any other class."""
    name, right = type(error).__name__, AssertionError.__name__
    if issubclass(type(error), AssertionError):
        return right
    return f"a class that is only named {name}" if name == right else name


def broadcasting(function: Callable, values: list, root: int, comm: Communicator):
    """Return the parameters after the student's broadcast, and the content of their old memory."""
    params = [nn.Parameter(value.clone()) for value in values]
    memory = [param.detach() for param in params]
    function(params, comm, root)
    return [param.detach() for param in params], memory


def momenta(function: Callable, kind: str, weights: list, states: list, root: int, comm: Communicator):
    """Return an optimizer's state after the student's broadcast; before it each rank has its own, with a group per
    weight."""
    params = [nn.Parameter(weight.clone()) for weight in weights]
    groups = [{"params": [param]} for param in params]
    optimizer = getattr(torch.optim, kind)(groups, 0.1, **({"momentum": MOMENTUM} if kind == "SGD" else {}))
    for param, state in zip(params, states, strict=True):
        optimizer.state[param].update({name: x.clone() for name, x in state.items()})
    function(optimizer, comm, root)
    return [dict(optimizer.state[param]) for param in params]


def with_gpus(function: Callable, env: dict, comm: Communicator):
    """Call `function(env)` as if this machine had eight GPUs."""
    before = torch.cuda.is_available, torch.cuda.device_count
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 8
    try:
        return function(env)
    finally:
        torch.cuda.is_available, torch.cuda.device_count = before


# Elastic training


class RankKilledError(BaseException):
    """Ends this rank's process."""


class Files:
    """A disk for states: written states are copied and logged. Its methods expose neither copies nor book."""

    __slots__ = ("exists", "read", "write")

    def __init__(self, files: dict, note: Callable):
        files = dict(files)

        def exists(name: str) -> bool:
            return name in files

        def write(name: str, content: Any) -> None:
            note("write", name, copied(content))

        def read(name: str) -> Any:
            if name not in files:
                raise FileNotFoundError(f"there is no file {name!r}")
            return copied(files[name])

        self.exists, self.write, self.read = opaque(exists), opaque(write), opaque(read)


def resuming(
    train: Callable, weights: list, x: Any, y: Any, batches: list, files: dict, dies: int, comm: Communicator, book: Any
):  # fmt: skip
    """Run the student's elastic training of "plain"; at its `dies`-th loss, every process ends.

    Returns its losses, weights and momentum. The entries are the samples of each loss and the writes to the disk.
    """
    model = network("plain", weights)
    optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=MOMENTUM)
    asked = 0

    def loss_sum(chosen):
        nonlocal asked
        if asked == dies:
            raise RankKilledError
        asked += 1
        book.note("asked", "", [int(i) for i in chosen])
        return cross_entropy(model(x[chosen]), y[chosen], reduction="sum")

    returned, disk = None, Files(files, book.note)
    with contextlib.suppress(RankKilledError):
        returned = train(model, optimizer, opaque(loss_sum), [batch.clone() for batch in batches], disk, comm)
    kept = [optimizer.state[param].get("momentum_buffer") for param in model.parameters()]
    return returned, weights_of(model), kept


def resumed(result: Any, entries: list) -> tuple:
    """Return the losses, the samples of each loss, what was written and when in its rank's order, the rest, and when
    each loss was asked for."""
    returned, weights, kept = result
    written = [(i, name, what) for i, (_, name, what, *_) in enumerate(of_kind(entries, "write"))]
    asked = of_kind(entries, "asked")
    moments = [Moment(begin) for *_, begin, _ in asked]
    return returned, [what for _, _, what, *_ in asked], written, weights, kept, moments


# torch.distributed, on our ranks


def in_group(function: Callable, name: str, weights: list, parts: tuple, comm: Communicator):
    """Call `function(*parts)`, with the model instead of None, inside a process group; return its weights and the
    calls."""
    from hpcdl.training.process_group import process_group

    model = network(name, weights)
    with process_group(comm) as group:
        returned = function(*[model if part is None else part for part in parts])
    return returned, weights_of(model), group.calls


class Ray:
    """The worker's interface of `ray.train`, on one of our ranks; `report` waits for all ranks, like Ray's."""

    def __init__(self, comm: Communicator):
        self._comm, self.reports, self.models = comm, list[dict](), list[nn.Module]()
        self.torch = types.SimpleNamespace(prepare_model=self._prepare)

    def get_context(self):
        places = {"get_world_rank": lambda: self._comm.rank, "get_world_size": lambda: self._comm.size}
        return types.SimpleNamespace(**places, get_local_rank=lambda: self._comm.rank % 2)

    def report(self, metrics: dict) -> None:
        self._comm.barrier()
        self.reports.append(dict(metrics))

    def _prepare(self, model: nn.Module) -> nn.Module:
        self.models.append(model)
        return nn.parallel.DistributedDataParallel(model)


def ray_loop(loop: Callable, name: str, weights: list, batches: list, lr: float, comm: Communicator):
    """Run the student's loop on this rank; return its reports, and the weights of the model it prepared."""
    from hpcdl.training.process_group import process_group

    train = Ray(comm)
    config = {"lr": lr, "batches": [tuple(batch) for batch in batches], "model": lambda: network(name, weights)}
    with process_group(comm):
        loop(config, train)
    return train.reports, [weights_of(model) for model in train.models]
