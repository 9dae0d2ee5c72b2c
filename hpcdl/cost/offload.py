"""The cost of offloading optimizer states: `hpcdl.sharding.offload`, op by op.

While parameter k is updated, the link writes the states of k - 1 and then reads the states of k + 1:

    T = b_0/B + sum_k max(c_k, (b_{k-1} + b_{k+1})/B) + b_{n-1}/B

with updates of c_k seconds, b_k bytes of states and a link of B bytes per second; b_{-1} = b_n = 0. Without overlap, T
= sum_k (c_k + 2 b_k/B). T is never less than sum_k c_k, and never less than sum_k 2 b_k/B.
"""

from collections.abc import Sequence
from typing import NamedTuple


class OffloadOp(NamedTuple):
    """A "read", "update" or "write" of parameter `k`, from `start` to `end` in seconds since the step began."""

    what: str
    k: int
    start: float
    end: float


def timeline(
    compute: Sequence[float], nbytes: Sequence[float], bandwidth: float, ahead: bool = True
) -> list[OffloadOp]:
    """Return every op of a step: updates of `compute` seconds, states of `nbytes` bytes, over a link of `bandwidth`
    bytes/s.

    Raises ValueError for lists of different lengths, negative numbers, and a link without bandwidth.
    """
    _check(compute, nbytes, bandwidth)
    return list((_overlapped if ahead else _plain)(compute, [size / bandwidth for size in nbytes]))


def seconds(compute: Sequence[float], nbytes: Sequence[float], bandwidth: float, ahead: bool = True) -> float:
    """Return the seconds of a step: when the last op of `timeline` ends."""
    return max((op.end for op in timeline(compute, nbytes, bandwidth, ahead)), default=0.0)


def _plain(compute: Sequence[float], moves: Sequence[float]):
    now = 0.0
    for k, (update, move) in enumerate(zip(compute, moves, strict=True)):
        for what, takes in (("read", move), ("update", update), ("write", move)):
            yield OffloadOp(what, k, now, now + takes)
            now += takes


def _overlapped(compute: Sequence[float], moves: Sequence[float]):
    n, now = len(compute), 0.0
    for k in range(-1, n + 1):
        link = core = now
        if k > 0:
            yield OffloadOp("write", k - 1, link, link := link + moves[k - 1])
        if k + 1 < n:
            yield OffloadOp("read", k + 1, link, link := link + moves[k + 1])
        if 0 <= k < n:
            yield OffloadOp("update", k, core, core := core + compute[k])
        now = max(link, core)


def _check(compute: Sequence[float], nbytes: Sequence[float], bandwidth: float) -> None:
    if len(compute) != len(nbytes):
        raise ValueError(f"{len(compute)} updates and {len(nbytes)} sizes of states; each parameter has both")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is {bandwidth!r}; it is above 0 bytes per second")
    if not all(value >= 0 for value in (*compute, *nbytes)):
        raise ValueError("seconds and bytes are 0 or more")
