"""Group parameters into units: a unit holds the parameters that the same layers use."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hpcdl.comm import Communicator
from hpcdl.sharding.gathering import Layer
from hpcdl.sharding.unit import Place, Unit

Layers = tuple[type[nn.Module], ...]

WHOLE: Layers = (nn.MultiheadAttention, nn.TransformerEncoderLayer)  # they use their submodules' parameters
LISTS: Layers = (nn.ParameterList, nn.ParameterDict)  # they have parameters but are never called


def cut(
    module: nn.Module, comm: Communicator, layers: Layers, dtype: torch.dtype | None
) -> tuple[list[Unit], list[tuple[nn.Module, Layer]]]:
    """Return the units of `module`, and the units that each layer needs."""
    places: dict[nn.Parameter, list[Place]] = {}
    users: dict[nn.Parameter, dict[nn.Module, None]] = {}
    types: dict[nn.Parameter, torch.dtype | None] = {}
    for user, place in _places(module, layers):
        param = place.module._parameters[place.name]
        assert param is not None  # `_places` skips None
        places.setdefault(param, []).append(place)
        users.setdefault(param, {})[user] = None
        keeps = isinstance(place.module, _BatchNorm) or not param.is_floating_point()
        types[param] = None if keeps else types.get(param, dtype)
    for user, param in _kept_elsewhere(module, places):
        users[param][user] = None
    alike: dict[tuple, list[nn.Parameter]] = {}
    for param, each in users.items():
        alike.setdefault((*each, param.dtype, param.requires_grad, types[param]), []).append(param)
    units: list[Unit] = []
    for group in alike.values():
        first = units[-1].layout.after if units else 0
        units.append(Unit({param: places[param] for param in group}, comm, first, types[group[0]]))
    needs: dict[nn.Module, list[Unit]] = {}
    for unit, key in zip(units, alike, strict=True):
        for user in key[:-3]:
            needs.setdefault(user, []).append(unit)
    return units, [(user, tuple(need)) for user, need in needs.items()]


def _places(module: nn.Module, layers: Layers) -> Iterator[tuple[nn.Module, Place]]:
    """Yield every place of a parameter in `module`, and the layer that it belongs to."""
    around: dict[nn.Module, nn.Module] = {}  # module -> the layer that contains it
    for path, inner in module.named_modules():
        if isinstance(inner, layers + WHOLE):
            for below in inner.modules():
                around.setdefault(below, inner)
        for child in inner.children():
            if isinstance(child, LISTS):
                around.setdefault(child, around.get(inner, inner))
        for name, param in inner._parameters.items():
            if param is not None:
                yield around.get(inner, inner), Place(inner, name, f"{path}.{name}" if path else name)


def _kept_elsewhere(module: nn.Module, known: dict[nn.Parameter, Any]) -> Iterator[tuple[nn.Module, nn.Parameter]]:
    """Return parameters that a module keeps in its own list, tuple or dict, and uses from there."""
    for inner in module.modules():
        own = {id(param) for param in inner._parameters.values()}
        for name, kept in vars(inner).items():
            if name not in ("_parameters", "_modules", "_buffers") and isinstance(kept, list | tuple | dict):
                for value in kept.values() if isinstance(kept, dict) else kept:
                    if isinstance(value, nn.Parameter) and value in known and id(value) not in own:
                        yield inner, value
