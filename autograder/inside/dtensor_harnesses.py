"""Harnesses (see `harnesses`) of decoders whose parameters are torch's DTensors: FSDP2 and tensor parallelism.

This is the real torch.distributed, over a process group whose messages the grader's machine carries
(`hpcdl.training.process_group`).
"""

import contextlib
import fnmatch
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm.base import Communicator
from hpcdl.nn.decoder import Decoder

from .book import Moment
from .framework_harnesses import filled

SIZES = (12, 8, 2, 2)  # vocabulary, hidden, heads, blocks
OF_A_BLOCK = 13  # tensors of parameters
LR = 0.1


def decoder(weights: list, tied: bool = False) -> Decoder:
    """Return a decoder of as many blocks as the weights fill."""
    return filled(Decoder(*SIZES[:3], len(weights) // OF_A_BLOCK, tied=tied).double(), weights)


def next_token(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of predicting each next token."""
    return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def fully_sharded(shard: Callable, weights: list, batches: list, tied: bool, comm: Communicator, book: Any):
    """Run steps with the student's sharded model; return losses, this rank's share of each parameter, and the group's
    calls.

    The book has an entry before and after each step.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from hpcdl.training.process_group import process_group

    # torch warns about writes into the output of a separately sharded layer; there are none here.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    with process_group(comm) as group:
        model = shard(decoder(weights, tied), init_device_mesh("cpu", (comm.size,)))
        shares = [_share(param) for param in model.parameters()]
        optimizer, losses = torch.optim.SGD(model.parameters(), LR), []
        for tokens in batches:
            book.note("begin")
            loss = next_token(model, tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            book.note("end")
            total = loss.detach() / comm.size
            dist.all_reduce(total)
            losses.append(total.item())
        return losses, shares, group.calls, [_whole(param) for param in model.parameters()]


def timed(result: Any, entries: list) -> tuple:
    """Return a harness's result with the virtual times of the book's entries."""
    return *result, [Moment(begin) for *_, begin, _ in entries]


def _share(param: Any) -> tuple[int, int]:
    """Return the number of elements on this rank, and in the whole."""
    return _local(param).numel(), param.numel()


def _local(x: Any) -> torch.Tensor:
    """Return this rank's part by torch's own method: an attribute of that name may belong to an answer."""
    from torch.distributed.tensor import DTensor

    return DTensor.to_local(x) if issubclass(type(x), DTensor) else x


def state_out(whole: Callable, weights: list, tied: bool, comm: Communicator):
    """Return what the student's function gives as a sharded model's whole state: tensors and their types, by name."""
    from hpcdl.training.process_group import process_group

    with process_group(comm):
        state = whole(_sharded(weights, tied))
        return {name: _plain(x) for name, x in state.items()}, {name: type(x).__name__ for name, x in state.items()}


def state_in(restore: Callable, weights: list, state: dict, tied: bool, comm: Communicator):
    """Return a sharded model's weights and shares after the student's function has filled it from a whole state."""
    from hpcdl.training.process_group import process_group

    with process_group(comm):
        model = _sharded(weights, tied)
        restore(model, {name: x.clone() for name, x in state.items()})
        params = list(model.parameters())
        return [_whole(param) for param in params], [_share(param) for param in params]


def _sharded(weights: list, tied: bool) -> Decoder:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = decoder(weights, tied), init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh)
    return model


def _plain(x: Any) -> torch.Tensor:
    return _local(x).detach().clone()


def _whole(x: Any) -> torch.Tensor:
    from torch.distributed.tensor import DTensor

    return (DTensor.full_tensor(x) if issubclass(type(x), DTensor) else x).detach().clone()


def planned(plan: Callable, weights: list, tokens: torch.Tensor, comm: Communicator, book: Any):
    """Run one pass through a decoder split by the student's plan.

    Returns logits, the group's calls, this rank's share of each parameter, and whole gradients. The book has an entry
    before the forward pass, before the backward pass, and after it. A plan that fits no decoder is not run: instead of
    the logits comes its type's name, or the list of its names that are no module's.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    from hpcdl.training.process_group import process_group

    with process_group(comm) as group, _no_log_of_shapes():
        model: Any = decoder(weights)
        styles = plan(model)
        if misfit := _misfit(styles, model):
            return misfit, [], {}, {}
        model = parallelize_module(model, init_device_mesh("cpu", (comm.size,)), styles)
        shares = {name: _share(param) for name, param in model.named_parameters()}
        book.note("forward")
        logits = model(tokens)
        book.note("backward")
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        book.note("end")
        return logits.detach(), group.calls, shares, _whole_gradients(model)


def _misfit(styles: Any, model: nn.Module) -> str | list[str]:
    """Return the type's name of a plan that is not a dict, or its names, with their wildcards, that are no module's."""
    if not isinstance(styles, dict):
        return "None" if styles is None else type(styles).__name__
    paths = [name.split(".") for name, _ in model.named_modules()]
    return [str(name) for name in styles if not any(_matches(path, str(name).split(".")) for path in paths)]


def _matches(path: list[str], pattern: list[str]) -> bool:
    return len(path) == len(pattern) and all(map(fnmatch.fnmatch, path, pattern))


@contextlib.contextmanager
def _no_log_of_shapes() -> Iterator[None]:
    """Silence torch's log of mismatched shapes, with its frames; torch also raises, and the check reports that."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    # One per rank, since ranks start and end at different times.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


def _whole_gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = {name: param.grad for name, param in model.named_parameters()}
    return {name: _whole(x) for name, x in found.items() if x is not None}
