"""The roofline: a kernel is as slow as its arithmetic or its memory traffic, whichever takes longer.

Source: Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model for multicore
architectures".
"""

from typing import NamedTuple


class Device(NamedTuple):
    """Peak floating-point operations per second and memory bytes per second."""

    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Return the operations per byte above which arithmetic, not memory, is the limit."""
        return self.peak / self.bandwidth


def attainable(intensity: float, device: Device) -> float:
    """Return the operations per second at `intensity` operations per byte: min(peak, intensity * bandwidth)."""
    return min(device.peak, intensity * device.bandwidth)


def seconds(flops: float, nbytes: float, device: Device) -> float:
    """Return the least time for this much arithmetic and memory traffic: max(flops / peak, nbytes / bandwidth)."""
    return max(flops / device.peak, nbytes / device.bandwidth)


def bound(flops: float, nbytes: float, device: Device) -> str:
    """Return what limits a kernel: "compute" or "memory"."""
    return "compute" if flops / device.peak >= nbytes / device.bandwidth else "memory"
