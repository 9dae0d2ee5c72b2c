"""Training with a hand on it: a rank slowed down, all of them paused, one killed, while it runs.

The hand writes a small file that every rank reads before each step.
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

NAP = 0.1  # seconds between two looks at the file while paused


class Hand(NamedTuple):
    """What the hand does now: all ranks `paused`, rank `slow_rank` `factor` times slower, rank `kill` ended."""

    paused: bool = False
    slow_rank: int = 0
    factor: float = 1.0
    kill: int | None = None

    def write(self, path: str | Path) -> None:
        """Put it into the file in one moment."""
        write_whole(path, json.dumps(self), durable=False)

    @classmethod
    def read(cls, path: str | Path) -> "Hand":
        """What the file says; nothing is done without a file."""
        try:
            return cls(*json.loads(Path(path).read_text()))
        except FileNotFoundError:
            return cls()


class Settings(NamedTuple):
    """Of a training on the first `ranks` engines; `steps` ends it early, after so many."""

    ranks: int = 4
    epochs: int = 20
    batch: int = 64
    lr: float = 0.02
    bucket_mb: float = 1.0
    overlap: bool = True
    all_reduce: str = "ring"
    steps: int | None = None


class Slowed(nn.Module):
    """A network whose forward pass begins with a pause of `seconds`."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net, self.seconds = net, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.net(x)


def train_live(
    comm: Communicator, settings: Settings, path: str, report: Callable[[dict], None] = publish
) -> float | None:
    """Train LeNet-5 on the digits; the held-out accuracy at the end, None on engines that stand by.

    Each step reports a record as `training.train.train` does, at the end of an epoch with `accuracy`. While paused, a
    rank reports {"paused": True} now and then.
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
        hand = obey(path, comm.rank, report)
        record = take_step(ddp, optimizer, images, mine, step)
        slower = hand.factor - 1 if hand.slow_rank == comm.rank else 0.0
        model.seconds = slower * (record["compute"] - model.seconds)
        if not settings.steps and (step + 1) % sampler.steps == 0:
            model.seconds, pause = 0.0, model.seconds
            correct = record["accuracy"] = accuracy(model, images, comm)
            model.seconds = pause
        report(record | {"epoch": (step + 1) / sampler.steps})
    return correct


def obey(path: str, rank: int, report: Callable[[dict], None]) -> Hand:
    """Do what the hand says to this rank; returns when training may go on."""
    while (hand := Hand.read(path)).paused:
        report({"paused": True})
        time.sleep(NAP)
    if hand.kill == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return hand


def all_reduce_seconds(comm: Communicator, name: str, sizes: tuple[int, ...], repeats: int = 15) -> list[float]:
    """The median seconds of an all-reduce of so many bytes over all engines, for each of `sizes`."""
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
