"""The module's state dict with whole parameters, from the ranks' pieces and back to them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.ddp.buffers import stored
from hpcdl.sharding.unit import Unit


def whole_state(module: nn.Module, units: Sequence[Unit], comm: Communicator) -> dict[str, Any]:
    """Return `module.state_dict()` with whole parameters on every rank; every rank calls it."""
    vectors = [unit.own.new_empty(unit.layout.numel) for unit in units]
    for unit, vector in zip(units, vectors, strict=True):
        unit.layout.all_gather(vector, comm, unit.own)
    with _in_place(units, vectors):
        state = module.state_dict()
        for name, value in state.items():
            state[name] = value.clone() if isinstance(value, torch.Tensor) else value
    return state


def load_whole(module: nn.Module, units: Sequence[Unit], state: Mapping[str, Any], strict: bool) -> Any:
    """Load a state dict of `module`, and keep this rank's pieces, without communication."""
    _make_writable(module)
    vectors = [unit.own.new_zeros(unit.layout.numel) for unit in units]
    for unit, vector in zip(units, vectors, strict=True):
        unit.layout.share(vector).copy_(unit.own)
    with _in_place(units, vectors):
        if strict and (missing := [name for name in module.state_dict() if name not in state]):
            raise KeyError(f"the state dict has no {missing[0]!r}; give one of the same model, or pass strict=False")
        found = module.load_state_dict(state, strict=strict)
    for unit, vector in zip(units, vectors, strict=True):
        unit.own.copy_(unit.layout.share(vector))
    return found


def persistent_buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers in the module's state dict by name; buffers with gaps are made contiguous first."""
    found: dict[str, torch.Tensor] = {}
    dense: dict[int, torch.Tensor] = {}  # a shared buffer stays shared
    for path, inner in module.named_modules(remove_duplicate=False):
        for name, buffer in inner._buffers.items():
            if buffer is not None and name not in inner._non_persistent_buffers_set:
                dense[id(buffer)] = dense.get(id(buffer), buffer.resolve_conj().resolve_neg().contiguous())
                inner._buffers[name] = found[f"{path}.{name}" if path else name] = dense[id(buffer)]
    return found


def _make_writable(module: nn.Module) -> None:
    """Give expanded buffers memory for every element: torch cannot copy into them. A shared buffer stays shared."""
    written: dict[int, torch.Tensor] = {}
    for inner in module.modules():
        for name, buffer in inner._buffers.items():
            if buffer is not None and stored(buffer) is not buffer:
                inner._buffers[name] = written.setdefault(id(buffer), buffer.contiguous())


@contextmanager
def _in_place(units: Sequence[Unit], vectors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Give the module, inside the block, the parameters in `vectors`, one for each unit."""
    for unit, vector in zip(units, vectors, strict=True):
        views = unit.layout.views(vector)
        wholes = [nn.Parameter(x, shard.requires_grad) for x, shard in zip(views, unit.shards, strict=True)]
        unit.put(wholes, unit.shards)
    try:
        yield
    finally:
        for unit in units:
            unit.put(unit.shards, unit.shards)
