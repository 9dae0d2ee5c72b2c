"""Training under live control: slow a rank down, pause all of them, or kill one, while it runs.

The controller writes `LiveCommands` to a small file that every rank reads before each step.
"""

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from hpcdl.cluster import publish
from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import Communicator, Group
from hpcdl.ddp.overlapped import DistributedDataParallel
from hpcdl.ddp.sampler import ShardedSampler
from hpcdl.files import write_whole
from hpcdl.nn.lenet import lenet5
from hpcdl.training.momentum import Momentum
from hpcdl.training.train import accuracy, load, take_step

NAP = 0.1  # seconds between reads of the file while paused


class LiveCommands(NamedTuple):
    """The current commands: all ranks `paused`, rank `slow_rank` `factor` times slower, rank `kill` ended."""

    paused: bool = False
    slow_rank: int = 0
    factor: float = 1.0
    kill: int | None = None

    def write(self, path: str | Path) -> None:
        """Write it to the file atomically."""
        write_whole(path, json.dumps(self), durable=False)

    @classmethod
    def read(cls, path: str | Path) -> "LiveCommands":
        """Read the file; without a file there are no commands."""
        try:
            return cls(*json.loads(Path(path).read_text()))
        except FileNotFoundError:
            return cls()


class Settings(NamedTuple):
    """Settings of a training on the first `ranks` engines; it ends early after `steps` steps."""

    ranks: int = 4
    epochs: int = 20
    batch: int = 64
    lr: float = 0.02
    bucket_mb: float = 1.0
    overlap: bool = True
    all_reduce: str = "ring"
    steps: int | None = None


class Slowed(nn.Module):
    """A network that pauses for `seconds` before its forward pass."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net, self.seconds = net, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.net(x)


def train_live(
    comm: Communicator, settings: Settings, path: str, report: Callable[[dict], None] = publish
) -> float | None:
    """Train LeNet-5 on the digits; return the held-out accuracy, or None on idle engines.

    Each step reports a record like `training.train.train`, with `accuracy` at the end of an epoch. While paused, a rank
    regularly reports {"paused": True}.
    """
    torch.set_num_threads(1)
    if comm.rank >= settings.ranks:
        return None
    comm, images = Group(comm, range(settings.ranks)), load("digits")
    torch.manual_seed(comm.rank)
    model = Slowed(lenet5())
    ddp = DistributedDataParallel(model, comm, settings.bucket_mb, settings.overlap, settings.all_reduce)
    optimizer = Momentum(model.parameters(), settings.lr)
    sampler = ShardedSampler(len(images.y), settings.batch, comm.rank, comm.size)
    correct = None
    for step, mine in sampler.shares(0, settings.steps or settings.epochs * sampler.steps):
        commands = follow_commands(path, comm.rank, report)
        record = take_step(ddp, optimizer, images, mine, step)
        slower = commands.factor - 1 if commands.slow_rank == comm.rank else 0.0
        model.seconds = slower * (record["compute"] - model.seconds)
        if not settings.steps and (step + 1) % sampler.steps == 0:
            model.seconds, pause = 0.0, model.seconds
            correct = record["accuracy"] = accuracy(model, images, comm)
            model.seconds = pause
        report(record | {"epoch": (step + 1) / sampler.steps})
    return correct


def follow_commands(path: str, rank: int, report: Callable[[dict], None]) -> LiveCommands:
    """Follow the commands for this rank; return when training may continue."""
    while (commands := LiveCommands.read(path)).paused:
        report({"paused": True})
        time.sleep(NAP)
    if commands.kill == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return commands


def all_reduce_seconds(comm: Communicator, name: str, sizes: tuple[int, ...], repeats: int = 15) -> list[float]:
    """Return the median seconds of an all-reduce over all engines, for each size in bytes of `sizes`."""
    torch.set_num_threads(1)
    medians = []
    for nbytes in sizes:
        x, seconds = torch.zeros(nbytes // 4), []
        for _ in range(repeats):
            comm.barrier()
            start = comm.clock()
            ALL_REDUCE[name](x, comm)
            seconds.append(comm.clock() - start)
        medians.append(statistics.median(seconds))
    return medians
