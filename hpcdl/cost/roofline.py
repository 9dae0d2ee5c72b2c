"""The roofline: a kernel is as slow as its arithmetic or its memory traffic, whichever takes longer.

Source: Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model for multicore
architectures".
"""

from typing import NamedTuple

from hpcdl.nn.networks import Layer


class Device(NamedTuple):
    """Peak floating-point operations per second and memory bytes per second."""

    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Operations per byte from which arithmetic, not memory, is the limit."""
        return self.peak / self.bandwidth


# From the lectures' table of accelerators: FP32, and the tensor cores at the precision named.
DEVICES = {
    "P100": Device(10.6e12, 720e9),
    "V100": Device(15.7e12, 900e9),
    "V100 FP16": Device(125e12, 900e9),
    "A100": Device(19.5e12, 1.6e12),
    "A100 TF32": Device(156e12, 1.6e12),
    "A100 FP16": Device(312e12, 1.6e12),
}


def attainable(intensity: float, device: Device) -> float:
    """Operations per second at `intensity` operations per byte: min(peak, intensity * bandwidth)."""
    return min(device.peak, intensity * device.bandwidth)


def seconds(flops: float, nbytes: float, device: Device) -> float:
    """The least time for so much arithmetic and memory traffic: max(flops / peak, nbytes / bandwidth)."""
    return max(flops / device.peak, nbytes / device.bandwidth)


def bound(flops: float, nbytes: float, device: Device) -> str:
    """What limits a kernel: "compute" or "memory"."""
    return "compute" if flops / device.peak >= nbytes / device.bandwidth else "memory"


class Work(NamedTuple):
    """Floating-point operations (two per MAC) and the bytes that must move once each way."""

    flops: float
    nbytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.nbytes


def layer_work(layer: Layer, batch: int, itemsize: int = 4) -> Work:
    """The forward pass of a layer for `batch` images: inputs and weights read once, outputs written once."""
    elements = batch * (layer.inputs + layer.outputs) + layer.weights
    return Work(2.0 * batch * layer.macs, float(elements * itemsize))


def forward_seconds(layers: list[Layer], batch: int, device: Device, itemsize: int = 4) -> float:
    """The least time of a forward pass, each layer at its roof; normalization and activations are left out."""
    return sum(seconds(*layer_work(layer, batch, itemsize), device) for layer in layers)
