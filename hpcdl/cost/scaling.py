"""How data-parallel training scales: one iteration, from the layers of a network to thousands of ranks.

The backward pass produces gradients last layer first, and an all-reduce sums them over the ranks one after another,
while the backward pass continues: wait-free backpropagation, WFBP (Zhang et al. 2017, "Poseidon"; Awan et al. 2017,
"S-Caffe"). Each small message pays alpha, so gradients are combined in buckets. `all_reduce` is any function of
bytes to seconds.
"""

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from hpcdl.cost.work import Transformer, check_numbers, table
from hpcdl.nn.networks import Layer


class Gradient(NamedTuple):
    """A gradient or a bucket: bytes to sum, and when they are ready, in seconds since the backward pass began."""

    ready: float
    nbytes: int


def gradients(model: Sequence[Layer] | Transformer, backward: float, itemsize: int = 4) -> list[Gradient]:
    """Return a model's gradients in order of arrival; each layer takes its share (by MACs) of `backward` seconds.

    Raises TypeError for anything that is not a model.
    """
    layers = table(model)
    macs, done, result = sum(layer.macs for layer in layers), 0, []
    for layer in reversed(layers):
        done += layer.macs
        result.append(Gradient(backward * done / macs if macs else backward, layer.weights * itemsize))
    return result


# -- buckets: each takes gradients and an all-reduce, and returns combined gradients ----------------------------------


def layerwise(gradients: list[Gradient], all_reduce: Callable | None = None) -> list[Gradient]:
    """Send one message per layer: the original WFBP."""
    return gradients


def single(gradients: list[Gradient], all_reduce: Callable | None = None) -> list[Gradient]:
    """Send one message for all after the backward pass, without overlap."""
    return [_together(gradients)]


def capped(gradients: list[Gradient], all_reduce: Callable | None = None, *, cap: float = 25 * 2**20) -> list[Gradient]:
    """Make buckets of up to `cap` bytes, with a larger gradient alone (PyTorch's way, Li et al. 2020; 25 MB is its
    default)."""
    buckets: list[list[Gradient]] = [[]]
    for gradient in gradients:
        if buckets[-1] and _nbytes(buckets[-1]) + gradient.nbytes > cap:
            buckets.append([])
        buckets[-1].append(gradient)
    return [_together(bucket) for bucket in buckets]


def fused(gradients: list[Gradient], all_reduce: Callable, *, cap: float = 64 * 2**20) -> list[Gradient]:
    """Send everything ready when the network is free, up to `cap` bytes (Horovod's way, Sergeev and Del Balso 2018)."""
    buckets: list[list[Gradient]] = []
    start = free = 0.0  # when the current message began, and when it ends
    for gradient in gradients:
        if buckets and gradient.ready <= start and _nbytes(buckets[-1]) + gradient.nbytes <= cap:
            buckets[-1].append(gradient)
        else:
            start = max(free, gradient.ready)
            buckets.append([gradient])
        free = start + all_reduce(_nbytes(buckets[-1]))
    return [_together(bucket) for bucket in buckets]


def merged(gradients: list[Gradient], all_reduce: Callable) -> list[Gradient]:
    """Return the buckets that finish first, by dynamic programming over where the last one begins.

    MG-WFBP (Shi, Chu and Li 2019) merges two neighbours if that saves more alpha than it loses overlap; this function
    finds the true optimum, for any `all_reduce`, in time quadratic in the number of layers.
    """
    ends, begins, before = [0.0], [0], [0]
    for gradient in gradients:
        before.append(before[-1] + gradient.nbytes)
        stop = len(before) - 1
        best = min(
            (max(ends[start], gradient.ready) + all_reduce(before[stop] - before[start]), start)
            for start in range(stop)
        )
        ends.append(best[0])
        begins.append(best[1])
    buckets, stop = [], len(gradients)
    while stop:
        buckets.append(_together(gradients[begins[stop] : stop]))
        stop = begins[stop]
    return buckets[::-1]


def _nbytes(gradients) -> int:
    return sum(gradient.nbytes for gradient in gradients)


def _together(gradients) -> Gradient:
    return Gradient(max(gradient.ready for gradient in gradients), _nbytes(gradients))


# -- one iteration ----------------------------------------------------------------------------------------------------


class Iteration(NamedTuple):
    """The seconds of one iteration by purpose.

    Computing `forward` and `backward`, communication that is not hidden (`exposed`), `waiting` for data, the pipeline's
    `bubble`, waiting for the slowest rank (`stragglers`), and the `optimizer`'s update.
    """

    forward: float
    backward: float
    exposed: float
    waiting: float
    bubble: float = 0.0
    stragglers: float = 0.0
    optimizer: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the sum of all parts."""
        return sum(self)

    @property
    def compute(self) -> float:
        """Return forward plus backward."""
        return self.forward + self.backward


def iteration(
    forward: float,
    buckets: Sequence[Gradient],
    all_reduce: Callable[[int], float],
    *,
    overlap: bool = True,
    input_seconds: float = 0.0,
    prefetch: bool = True,
) -> Iteration:
    """Predict one iteration of synchronous SGD; the backward pass ends when the last of `buckets` is ready.

    Reading and preparing the next batch takes `input_seconds`, hidden behind everything else with `prefetch`.
    """
    backward = buckets[-1].ready
    if overlap:
        end = finished(buckets, all_reduce)
    else:
        end = backward + sum(all_reduce(bucket.nbytes) for bucket in buckets)
    step = forward + end
    waiting = max(0.0, input_seconds - step) if prefetch else input_seconds
    return Iteration(forward, backward, end - backward, waiting)


def finished(buckets: Sequence[Gradient], all_reduce: Callable[[int], float]) -> float:
    """Return when the last bucket is summed, in seconds since the backward pass began; one message at a time, in
    order."""
    end = 0.0
    for bucket in buckets:
        end = max(end, bucket.ready) + all_reduce(bucket.nbytes)
    return end


# -- ranks -------------------------------------------------------------------------------------------------------------


def slowest(p: int, spread: float) -> float:
    """Return the slowest of `p` ranks' computing time relative to the mean; `spread` is the relative deviation.

    Synchronous ranks wait for the slowest. The expected largest of p normal values, by Blom's approximation (1958),
    within a twentieth; it tends to sqrt(2 ln p). Equal GPUs of large machines vary by 8 % (Sinha et al. 2022). Raises
    ValueError without a rank, and for a spread below 0.
    """
    check_numbers(1, p=p)
    check_numbers(spread=spread)
    return 1.0 + spread * NormalDist().inv_cdf((p - 0.375) / (p + 0.25)) if p > 1 else 1.0
