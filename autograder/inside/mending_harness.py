"""The harness (see `harnesses`) of training scripts with a mistake, which students mend."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.nn.functional import cross_entropy

from hpcdl.comm.base import Communicator

from .book import Entry, Moment, of_kind
from .doors import opaque
from .framework_harnesses import MOMENTUM, network, weights_of
from .shard_harnesses import LoggedDisk


def mending(
    train: Callable, weights: list, x: Any, y: Any, parts: tuple, lr: float, files: dict, comm: Communicator, book: Any
):
    """Run the student's script on "plain"; return its result and the weights.

    `parts` are its arguments; a name stands for the object of that name. The entries are the samples of each loss, what
    is logged, and what happens on the disk.
    """
    from torch.utils.data import DistributedSampler

    model, samples = network("plain", weights), cast(Any, range(len(x)))

    def loss_sum(chosen):
        book.note("asked", "", [int(i) for i in chosen])
        return cross_entropy(model(x[chosen]), y[chosen], reduction="sum")

    made = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr, momentum=MOMENTUM),
        "loss_sum": opaque(loss_sum),
        "sampler": DistributedSampler(samples, comm.size, comm.rank),
        "log": opaque(lambda step, loss: book.note("log", "", [int(step), float(loss)])),
        "disk": LoggedDisk(files, book.note),
        "comm": comm,
    }
    returned = train(*[made[part] if type(part) is str else part for part in parts])
    return returned, weights_of(model)


def did(result: Any, entries: list[Entry]) -> tuple:
    """Return the script's result and weights, the samples of each loss, the logged losses, and the disk's log."""
    asked, logged = ([what for _, _, what, *_ in of_kind(entries, kind)] for kind in ("asked", "log"))
    on_disk = [entry for entry in entries if entry[0] in ("write", "rename")]
    return *result, asked, logged, [(*what, Moment(begin), Moment(end)) for *what, begin, end in on_disk]
