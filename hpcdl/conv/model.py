"""The cost model for convolutions with which `hpcdl.conv.auto` chooses on a CPU.

    seconds = sum over i of rate[i] work[i]

The work of each candidate, in multiplications, additions and numbers moved, follows from the shape of the problem; the
rates are fitted to a few seconds of measurements (`hpcdl.conv.calibration`). Candidates are the algorithms of the
registry, except Toeplitz, and torch's own convolution in both memory formats.
"""

from math import log2
from typing import NamedTuple

import torch

from hpcdl.conv.fft import good_sizes
from hpcdl.conv.problem import Problem

TORCH = {"torch": torch.preserve_format, "torch_channels_last": torch.channels_last}
WANT_CHANNELS_LAST = {"torch_channels_last": True, "direct": True, "im2col": True, "fft": False}
WANT_CHANNELS_LAST |= {"winograd_2x2": True, "winograd_4x4": True}
UNIT = 16  # channels are computed in vectors
MODEL = 2  # of `candidates` and `works`: rates that were fitted to another model are measured again
NARROW = 16  # channels in a group below which arithmetic does not limit the products


class Situation(NamedTuple):
    """Everything that determines the time: the problem, the data, whether filter transforms are kept, threads and
    device."""

    problem: Problem
    dtype: torch.dtype
    channels_last: bool
    prepared: bool
    threads: int
    device: str = "cpu"


def predict(name: str, situation: Situation, rates: dict[str, list[float]]) -> float:
    """Predict the seconds with the rates of `key(name, problem)`."""
    pairs = zip(rates[key(name, situation.problem)], works(name, situation), strict=True)
    return sum(rate * work for rate, work in pairs)


def candidates(problem: Problem) -> list[str]:
    """Return possible winners: narrow groups are for torch and Fourier, Winograd for 3 x 3 filters with stride 1."""
    names = [*TORCH, "fft"]
    if problem.groups == 1:
        names += ["direct", "im2col"] if problem.dilation == 1 else ["im2col"]
    if (problem.R, problem.S, problem.stride, problem.dilation) == (3, 3, 1, 1) and not narrow(problem):
        names += ["winograd_2x2", "winograd_4x4"]
    return names


def narrow(problem: Problem) -> bool:
    """Whether groups are so narrow (depthwise at the extreme) that rates are of another kind."""
    return problem.groups > 1 and problem.C // problem.groups < NARROW


def key(name: str, problem: Problem) -> str:
    """Return the key of a candidate's rates."""
    return f"{name}, narrow groups" if narrow(problem) else name


def works(name: str, situation: Situation) -> tuple[float, ...]:
    """The amounts of work that cost time: the call itself, numbers brought into another layout, and the algorithm's."""
    problem = situation.problem
    pixels = problem.N * (problem.C * problem.H * problem.W + problem.K * problem.P * problem.Q)
    layout = WANT_CHANNELS_LAST.get(name, situation.channels_last)
    moved = pixels if layout != situation.channels_last else 0
    return 1.0, moved, *WORKS.get(name, _matrix)(problem, pixels, situation.prepared)


def _matrix(problem: Problem, pixels: int, prepared: bool) -> tuple[float, ...]:
    return problem.macs, pixels, _weights(problem)


def _weights(problem: Problem) -> int:
    return problem.K * problem.C // problem.groups * problem.R * problem.S


def _direct(problem: Problem, pixels: int, prepared: bool) -> tuple[float, ...]:
    whole = _whole(problem.K, 2 * UNIT) / problem.K
    return problem.macs * whole, pixels, 0 if prepared else _weights(problem)


def _im2col(problem: Problem, pixels: int, prepared: bool) -> tuple[float, ...]:
    return problem.macs, problem.N * problem.C * problem.R * problem.S * problem.P * problem.Q, 0


def _winograd(m: int):
    def works(problem: Problem, pixels: int, prepared: bool) -> tuple[float, ...]:
        g, positions = problem.groups, (m + 2) ** 2
        depth, width = _whole(problem.C // g, UNIT), _whole(problem.K // g, 2 * UNIT)
        tiles = problem.N * -(-problem.P // m) * -(-problem.Q // m)
        filters = g * depth * width * positions
        return tiles * filters, tiles * g * (depth + width) * positions, filters, 0 if prepared else filters

    return works


def _fft(problem: Problem, pixels: int, prepared: bool) -> tuple[float, ...]:
    a, b = good_sizes(problem)
    filters, transform = problem.K * problem.C // problem.groups, a * b * log2(a * b)
    spectrum = a * (b // 2 + 1)
    images = problem.N * (problem.C + problem.K)
    transforms, kept = images * transform, 0 if prepared else filters * transform
    return transforms, problem.N * filters * spectrum, filters * spectrum, kept


def _whole(n: int, unit: int) -> int:
    return -(-n // unit) * unit


WORKS = {"direct": _direct, "im2col": _im2col, "winograd_2x2": _winograd(2), "winograd_4x4": _winograd(4), "fft": _fft}
