"""How much a step computes, and how fast that is: operations and kept bytes of each layer, a machine's peak, MFU."""

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from hpcdl.cost.machines import MACHINES, Machine
from hpcdl.cost.topology import Nodes
from hpcdl.memory import saved
from hpcdl.parallel import Mesh
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError
from hpcdl.training.hybrid.models import Model, build

GPUS = {"H100": "H100 (DGX)", "A100": "A100 (Superpod)", "V100": "V100 (DGX-1)", "P100": "P100", "K80": "K80"}


class LayerWork(NamedTuple):
    """A layer's operations and `kept` bytes for backward (float32), both of one sample forward; `weights`, `outputs`.

    `inputs` and `outputs` are elements of one sample.
    """

    flops: int
    kept: int
    weights: int
    inputs: int
    outputs: int


@lru_cache(32)
def layers_of(model: str, size: str) -> tuple[LayerWork, ...]:
    """The layers of a model on one rank, counted by torch, one of each kind."""
    built = build(model, size)
    x = built.data[0][:1].to("meta")
    with torch.device("meta"):
        dense = built.dense()
    known: dict[Any, tuple[LayerWork, torch.Size]] = {}  # equal layers are counted once
    found: list[LayerWork] = []
    for layer in dense:
        key = (str(layer), x.shape)
        if key not in known:
            known[key] = _counted(layer, x)
        work, shape = known[key]
        found.append(work)
        x = torch.empty(shape, device="meta", requires_grad=True)
    return tuple(found)


def _counted(layer: torch.nn.Module, x: torch.Tensor) -> tuple[LayerWork, torch.Size]:
    from torch.utils.flop_counter import FlopCounterMode

    x = x.float() if x.is_floating_point() else x
    with FlopCounterMode(display=False) as counter:
        y = layer(x)
    # What is kept depends on the kernels of the device, so this is done on values.
    values, inputs = deepcopy(layer).to_empty(device="cpu"), torch.zeros_like(x, device="cpu")
    with saved(*values.parameters()) as kept:
        values(inputs.requires_grad_(x.requires_grad))
    weights = sum(param.numel() for param in layer.parameters())
    return LayerWork(counter.get_total_flops(), kept.bytes, weights, x.numel(), y.numel()), y.shape


def flops_of_sample(configuration: Configuration) -> int:
    """Operations of one sample forward and backward: three times forward, nothing computed again."""
    return 3 * sum(layer.flops for layer in layers_of(configuration.model, configuration.size))


def shares_of_chunks(configuration: Configuration, mesh: Mesh, parts: Sequence[tuple[int, int]]) -> list[float]:
    """What each of this rank's chunks has of the model's operations, before layers are cut: 1 for all of them."""
    layers = layers_of(configuration.model, configuration.size)
    sizes = shares(len(layers), len(parts))
    ends, total = accumulate(sizes), sum(layer.flops for layer in layers)
    each = [sum(layer.flops for layer in layers[last - n : last]) for last, n in zip(ends, sizes, strict=True)]
    return [flops / total for (stage, _), flops in zip(parts, each, strict=True) if stage == mesh.stage]


def machine_named(name: str) -> Machine:
    """A machine of `hpcdl.cost.MACHINES` by its name or its beginning; ConfigurationError unless it is one machine."""
    exact = [machine for known, machine in MACHINES.items() if known.lower() == name.lower()]
    found = exact or [machine for known, machine in MACHINES.items() if known.lower().startswith(name.lower())]
    if len(found) != 1 or not name:
        raise ConfigurationError(f"machine is {name[:40]!r}; it is one of {', '.join(MACHINES)}")
    return found[0]


def machine_of(device: str) -> Machine | None:
    """The machine of a rank's device by the GPU's name; None for a processor, whose peak is not known."""
    if torch.device(device).type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((MACHINES[known] for short, known in GPUS.items() if short in name), None)


def links_of(machine: Machine) -> dict[str, Any]:
    """Seconds per message and byte of a machine's network, as `hpcdl.comm.simulate` takes them."""
    network = machine.usual().network
    if isinstance(network, Nodes):
        (alpha, beta), within = network.between, tuple(network.within)
        return {"alpha": alpha, "beta": beta, "per_node": network.per_node, "within": within}
    return {"alpha": network.link.alpha, "beta": network.link.beta}


class Speed:
    """How fast steps are: `rates` of a step, and the `peak` of a rank, operations per second, None if not known."""

    def __init__(self, configuration: Configuration, model: Model, machine: Machine | None):
        self.ranks, self.machine = configuration.ranks, machine
        self.peak = machine.peaks.get(configuration.precision) if machine else None
        self.unit, self._each = ("tokens", model.sequence) if model.sequence else (model.unit, 1)
        self._flops = flops_of_sample(configuration) if self.peak else 0

    def rates(self, samples: int, seconds: float) -> dict[str, float | None]:
        """Tokens or images of all ranks per second, and MFU: the share of the peak that the model's operations take.

        None where virtual time stands still, or no peak is known.
        """
        per_second = samples * self._each / seconds if seconds else None
        mfu = samples * self._flops / (seconds * self.ranks * self.peak) if seconds and self.peak else None
        return {f"{self.unit}_per_second": per_second, "mfu": mfu}
