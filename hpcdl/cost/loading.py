"""Whether the input keeps up: workers that load batches ahead into a queue, and a training that takes them.

The slowest stage sets the rate; the queue only evens out that some batches take longer than others.
"""

from collections.abc import Sequence
from typing import NamedTuple


def loading_rate(read: float, decode: float, train: float, workers: int = 1, cores: int | None = None) -> float:
    """Batches per second in the long run: `min(workers / (read + decode), 1 / train, cores / (decode + train))`.

    Seconds of one batch: to `read` it, to `decode` it, both by one of so many workers, and to `train` on it. Where the
    workers and the training share `cores`, decoding and training do not overlap more than these allow; reading waits
    for a disk and takes none. Raises ValueError for seconds below 0, all of them 0, or no worker.

    >>> loading_rate(read=0.02, decode=0.06, train=0.03, workers=2)
    25.0
    >>> loading_rate(read=0.02, decode=0.06, train=0.03, workers=4, cores=2)
    22.22222222222222
    """
    if workers < 1 or min(read, decode, train) < 0 or read + decode + train == 0 or (cores is not None and cores < 1):
        raise ValueError(
            f"read is {read}, decode {decode}, train {train}, workers {workers}, cores {cores}; seconds are 0 or more "
            "and not all 0, and there is a worker and a core"
        )
    slowest = max((read + decode) / workers, train, (decode + train) / cores if cores else 0.0)
    return 1 / slowest


class Loading(NamedTuple):
    """A training by its input: `seconds` to the end, `waited` of them for input, and `waits`, batch by batch."""

    seconds: float
    waited: float
    waits: list[float]


def play_loading(
    read: Sequence[float], decode: Sequence[float], train: Sequence[float], workers: int = 1, queue: int = 1
) -> Loading:
    """Batch by batch: each is read and decoded by the worker that is free first, and taken in order by the training.

    No more than `queue` batches are loaded or on their way, and not taken yet. Batch i begins when a worker is free and
    batch i - queue is taken: `b_i = max(free, t_(i-queue))`. It is taken once it is there and the step before is
    computed: `t_i = max(b_i + read_i + decode_i, t_(i-1) + train_(i-1))`. Exact for these seconds; no core is shared.
    Raises ValueError for lists of different lengths, or no worker or place.

    >>> play_loading([1.0] * 3, [1.0] * 3, [1.0] * 3, workers=1, queue=2)
    Loading(seconds=7.0, waited=4.0, waits=[2.0, 1.0, 1.0])
    """
    if not len(read) == len(decode) == len(train) or min(workers, queue) < 1:
        raise ValueError(
            f"read, decode and train have {len(read)}, {len(decode)} and {len(train)} batches, workers is {workers}, "
            f"queue {queue}; each batch has all three, workers and queue are 1 or more"
        )
    free, done = [0.0] * workers, 0.0
    taken: list[float] = []
    waits: list[float] = []
    for i, (reading, decoding, training) in enumerate(zip(read, decode, train, strict=True)):
        worker = free.index(min(free))
        free[worker] = max(free[worker], taken[i - queue] if i >= queue else 0.0) + reading + decoding
        taken.append(max(done, free[worker]))
        waits.append(taken[-1] - done)
        done = taken[-1] + training
    return Loading(done, sum(waits), waits)
