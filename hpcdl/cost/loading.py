"""Whether the input keeps up: workers that load batches ahead into a queue, and a training that takes them.

The slowest stage sets the rate; the queue only smooths out differences between batches.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

from hpcdl.cost.work import check_number


def loading_rate(read: float, decode: float, train: float, workers: int = 1, cores: int | None = None) -> float:
    """Return the batches per second in the long run: `min(workers / (read + decode), 1 / train, cores / (decode +
    train))`.

    Seconds of one batch: a worker takes `read` and `decode`, training takes `train`. If workers and training share
    `cores`, decoding and training overlap only as far as these allow; reading waits for the disk and needs no core.
    Raises ValueError for negative seconds, if all are 0, or without a worker.

    >>> loading_rate(read=0.02, decode=0.06, train=0.03, workers=2)
    25.0
    >>> loading_rate(read=0.02, decode=0.06, train=0.03, workers=4, cores=2)
    22.22222222222222
    """
    each = all(seconds >= 0 for seconds in (read, decode, train)) and read + decode + train > 0
    if not (each and workers >= 1 and (cores is None or cores >= 1)):
        raise ValueError(
            f"read is {read}, decode {decode}, train {train}, workers {workers}, cores {cores}; seconds are 0 or more "
            "and not all 0, and there is a worker and a core"
        )
    slowest = max((read + decode) / workers, train, (decode + train) / cores if cores else 0.0)
    return 1 / slowest


class Loading(NamedTuple):
    """A training limited by its input: `seconds` in total, `waited` of them for input, and `waits` by batch."""

    seconds: float
    waited: float
    waits: list[float]


def play_loading(
    read: Sequence[float], decode: Sequence[float], train: Sequence[float], workers: int = 1, queue: int = 1
) -> Loading:
    """Simulate loading: the first free worker reads and decodes each batch, and training takes batches in order.

    At most `queue` batches are being loaded or waiting. Batch i begins when a worker is free and batch i - queue has
    been taken: `b_i = max(free, t_(i-queue))`. It is taken once it is loaded and the previous step is computed: `t_i =
    max(b_i + read_i + decode_i, t_(i-1) + train_(i-1))`. The result is exact for these seconds; no core is shared.
    Raises ValueError for lists of different lengths, seconds below 0, or without a worker or a place in the queue.

    >>> play_loading([1.0] * 3, [1.0] * 3, [1.0] * 3, workers=1, queue=2)
    Loading(seconds=7.0, waited=4.0, waits=[2.0, 1.0, 1.0])
    """
    for seconds in (*read, *decode, *train):
        check_number("one of read, decode and train", seconds)
    whole = all(isinstance(number, Integral) and number >= 1 for number in (workers, queue))
    if not whole or not len(read) == len(decode) == len(train):
        raise ValueError(
            f"read, decode and train have {len(read)}, {len(decode)} and {len(train)} batches, workers is {workers}, "
            f"queue {queue}; each batch has all three, workers and queue are whole numbers from 1"
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
