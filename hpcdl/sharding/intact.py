"""Refuse to change or read the weights of a sharded module without its wrapper."""

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from hpcdl.ddp.refusals import NoneAdded
from hpcdl.sharding.unit import CHANGE, Unit


class Intact:
    """Checks that the pieces of a module's `units` keep their place, device and dtype."""

    def __init__(self, module: nn.Module, units: Sequence[Unit]):
        self.units = units
        self._none_added = NoneAdded(module, [shard for unit in units for shard in unit.shards])
        refuse = partial(_refuse_state, weakref.ref(self))  # a hook must not keep it alive
        for owner in {place.module: None for unit in units for places in unit.places for place in places}:
            owner.register_state_dict_pre_hook(refuse)
            owner.register_load_state_dict_pre_hook(refuse)

    def require(self) -> None:
        """Raise RuntimeError, before a forward pass, for a parameter that was replaced, moved or converted."""
        for unit in self.units:
            memory = unit.own.untyped_storage()._cdata  # also of pieces without elements
            for shard, places in zip(unit.shards, unit.places, strict=True):
                if any(dict.get(place.module._parameters, place.name) is not shard for place in places):
                    raise RuntimeError(f"{places[0].path} was replaced after wrapping; {CHANGE}")
                if shard.dtype != unit.own.dtype or shard.untyped_storage()._cdata != memory:
                    raise RuntimeError(
                        f"{places[0].path} was moved, converted or given other data after wrapping; {CHANGE}, or use "
                        "the wrapper's load_state_dict()"
                    )
        self._none_added.require()

    def in_pieces(self, module: nn.Module) -> bool:
        """Return whether a parameter of `module` is currently a piece."""
        return any(
            place.module is module and dict.get(module._parameters, place.name) is shard
            for unit in self.units
            for shard, places in zip(unit.shards, unit.places, strict=True)
            for place in places
        )


def _refuse_state(me: weakref.ref[Intact], module: nn.Module, *_: Any) -> None:
    """Refuse a submodule's state dict: it would have pieces under the names of whole parameters."""
    intact = me()
    if intact is not None and intact.in_pieces(module):
        raise RuntimeError(
            f"the weights of {type(module).__name__} are in pieces on the ranks; call state_dict() and "
            "load_state_dict() on the FullyShardedDataParallel"
        )
