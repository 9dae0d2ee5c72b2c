"""The work of a step, and its speed: operations and kept bytes of each layer, a machine's peak, MFU."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpcdl.cost.machines import MACHINES, Machine
from hpcdl.cost.topology import Nodes
from hpcdl.memory import saved
from hpcdl.parallel import Mesh
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError
from hpcdl.training.hybrid.models import Model, build

aten = torch.ops.aten
GPUS = {
    "H200": "H200 (DGX)",
    "H100": "H100 (DGX)",
    "A100": "A100 (Superpod)",
    "V100": "V100 (DGX-1)",
    "P100": "P100",
    "K80": "K80",
}


class LayerWork(NamedTuple):
    """A layer's forward operations and `kept` bytes for backward (float32), both per sample; its `weights` and
    `outputs`.

    `inputs` and `outputs` count elements per sample.
    """

    flops: int
    kept: int
    weights: int
    inputs: int
    outputs: int


@lru_cache(32)
def layers_of(model: str, size: str) -> tuple[LayerWork, ...]:
    """Return the layers of a model on one rank, counted in a forward pass, once for each kind."""
    built = build(model, size)
    x = built.data[0][:1].clone()
    with torch.random.fork_rng(devices=[]):
        dense = built.dense()
    known: dict[Any, tuple[LayerWork, torch.Size]] = {}  # equal layers are counted once
    found: list[LayerWork] = []
    for layer in dense:
        key = (str(layer), x.shape)
        if key not in known:
            known[key] = _counted(layer, x)
        work, shape = known[key]
        found.append(work)
        x = torch.zeros(shape, requires_grad=True)
    return tuple(found)


class _Operations(TorchDispatchMode):
    """Counts multiplications and additions of matrices, convolutions and attention.

    `torch.utils.flop_counter` counts the same, but imports torch's compiler, which takes seconds.
    """

    flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports the compiler, too

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in (aten.mm.default, aten.bmm.default):
            self.flops += 2 * out.numel() * args[0].shape[-1]
        elif func is aten.addmm.default:
            self.flops += 2 * out.numel() * args[1].shape[-1]
        elif func is aten.convolution.default:
            self.flops += 2 * out.numel() * args[1][0].numel()
        elif func is aten._scaled_dot_product_flash_attention_for_cpu.default:
            self.flops += 4 * args[0].numel() * args[1].shape[-2]
        return out


def _counted(layer: torch.nn.Module, x: torch.Tensor) -> tuple[LayerWork, torch.Size]:
    x = x.float() if x.is_floating_point() else x
    with saved(*layer.parameters()) as kept, _Operations() as counter:
        y = layer(x)
    weights = sum(param.numel() for param in layer.parameters())
    return LayerWork(counter.flops, kept.bytes, weights, x.numel(), y.numel()), y.shape


def flops_of_sample(configuration: Configuration) -> int:
    """Return the operations of one sample forward and backward: three times forward, without recomputation."""
    return 3 * sum(layer.flops for layer in layers_of(configuration.model, configuration.size))


def shares_of_chunks(configuration: Configuration, mesh: Mesh, parts: Sequence[tuple[int, int]]) -> list[float]:
    """Return each local chunk's share of the model's operations, before layers are split; all chunks together are 1."""
    layers = layers_of(configuration.model, configuration.size)
    sizes = shares(len(layers), len(parts))
    ends, total = accumulate(sizes), sum(layer.flops for layer in layers)
    each = [sum(layer.flops for layer in layers[last - n : last]) for last, n in zip(ends, sizes, strict=True)]
    return [flops / total for (stage, _), flops in zip(parts, each, strict=True) if stage == mesh.stage]


def machine_named(name: str) -> Machine:
    """Find a machine in `hpcdl.cost.machines.MACHINES` by its name or a prefix; raise ConfigurationError unless
    exactly one matches."""
    exact = [machine for known, machine in MACHINES.items() if known.lower() == name.lower()]
    found = exact or [machine for known, machine in MACHINES.items() if known.lower().startswith(name.lower())]
    if len(found) != 1 or not name:
        raise ConfigurationError(f"machine is {name[:40]!r}; it is one of {', '.join(MACHINES)}")
    return found[0]


def machine_of(device: str) -> Machine | None:
    """Return the machine of a rank's device by the GPU's name; None for a CPU, whose peak is unknown."""
    if torch.device(device).type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((MACHINES[known] for short, known in GPUS.items() if short in name), None)


def links_of(machine: Machine) -> dict[str, Any]:
    """Return a machine's seconds per message and byte, as `hpcdl.comm.simulate` takes them."""
    network = machine.usual().network
    if isinstance(network, Nodes):
        (alpha, beta), within = network.between, tuple(network.within)
        return {"alpha": alpha, "beta": beta, "per_node": network.per_node, "within": within}
    return {"alpha": network.link.alpha, "beta": network.link.beta}


class Speed:
    """The speed of steps: `rates` of a step, and a rank's `peak` in operations per second, None if unknown."""

    def __init__(self, configuration: Configuration, model: Model, machine: Machine | None):
        self.ranks, self.machine = configuration.ranks, machine
        self.peak = machine.peaks.get(configuration.precision) if machine else None
        self.unit, self._each = ("tokens", model.sequence) if model.sequence else (model.unit, 1)
        self._flops = flops_of_sample(configuration) if self.peak else 0

    def rates(self, samples: int, seconds: float) -> dict[str, float | None]:
        """Return tokens or images per second over all ranks, and MFU: the model's operations as a share of the peak.

        Values are None if virtual time stands still or no peak is known.
        """
        per_second = samples * self._each / seconds if seconds else None
        mfu = samples * self._flops / (seconds * self.ranks * self.peak) if seconds and self.peak else None
        return {f"{self.unit}_per_second": per_second, "mfu": mfu}
