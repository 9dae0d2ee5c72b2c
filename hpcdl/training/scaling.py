"""How a training scales on these engines: measurements next to the cost model's predictions."""

import statistics
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from hpcdl.cluster import Cluster
from hpcdl.cost import collectives, scaling
from hpcdl.cost.alpha_beta import Fit, fit_collective
from hpcdl.machine import cores
from hpcdl.nn.networks import lenet5
from hpcdl.training.live import Settings, all_reduce_seconds, train_live

STEPS, WARM = 24, 6  # per measurement; the first ones warm up
SIZES = (4_000, 64_000, 256_000, 1_000_000)  # bytes of the all-reduces that determine alpha and beta


class Point(NamedTuple):
    """One point: p ranks, the images per step, and the measured and predicted seconds per step."""

    p: int
    images: int
    measured: float
    predicted: float


def measure(cluster: Cluster, settings: Settings, weak: bool, path: str) -> Iterator[Point]:
    """Measure on 1, 2, 4, ... ranks: with `weak` scaling each has `settings.batch` images, otherwise they share
    them."""
    link = links(cluster, settings.all_reduce)
    for p in [count for count in (1, 2, 4, 8, 16) if count <= cluster.n]:
        images = settings.batch * (p if weak else 1)
        alone = timed(cluster, settings._replace(ranks=1, batch=max(1, images // p)), path)
        together = timed(cluster, settings._replace(ranks=p, batch=images), path) if p > 1 else alone
        measured = statistics.median(record["total"] for record in together)
        yield Point(p, images, measured, predicted(p, alone, settings, link))


def links(cluster: Cluster, all_reduce: str) -> Fit | None:
    """Measure alpha and beta of messages between all engines; None if there is only one engine."""
    if cluster.n == 1:
        return None
    seconds = cluster.run(all_reduce_seconds, all_reduce, SIZES)[0]
    return fit_collective(collectives.ALL_REDUCE[all_reduce], cluster.n, SIZES, seconds)


def timed(cluster: Cluster, settings: Settings, path: str) -> list[dict]:
    """Return rank 0's records of a few steps."""
    run = cluster.stream(train_live, settings._replace(steps=STEPS), path)
    return [record.value for record in run if record.rank == 0][WARM:]


def predicted(p: int, alone: list[dict], settings: Settings, link: Fit | None) -> float:
    """Predict the seconds of a step: one rank's computation, and the messages that are not overlapped.

    If there are more ranks than cores, computing takes p / cores times as long.
    """
    turns = max(1.0, p / cores())
    backward = turns * statistics.median(end - start for record in alone for start, end in [_span(record, "backward")])
    step = turns * statistics.median(record["total"] for record in alone)
    ready = scaling.gradients(lenet5(), backward)
    all_reduce = partial(_seconds, settings.all_reduce, p, link)
    buckets = scaling.capped(ready, cap=settings.bucket_mb * 2**20)
    return scaling.iteration(step - backward, buckets, all_reduce, overlap=settings.overlap).seconds


def _span(record: dict, name: str) -> tuple[float, float]:
    return next((start, end) for span, start, end in record["spans"] if span == name)


def _seconds(name: str, p: int, link: Fit | None, nbytes: float) -> float:
    if p == 1:
        return 0.0
    assert link is not None  # `links` returns one if there is more than one engine
    return collectives.ALL_REDUCE[name](p, round(nbytes), link.alpha, link.beta)
