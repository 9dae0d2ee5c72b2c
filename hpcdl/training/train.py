"""Train LeNet-5 data-parallel: on a notebook's engines, or as a program (`hpcdl.training.program`)."""

import hashlib
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Communicator
from hpcdl.data import Split, cifar10, digits, mnist
from hpcdl.data.seeds import wrapped
from hpcdl.ddp.agreement import require_same
from hpcdl.ddp.naive import fingerprint, identical_replicas
from hpcdl.ddp.overlapped import BucketSpan, DistributedDataParallel
from hpcdl.ddp.sampler import ShardedSampler
from hpcdl.nn.lenet import lenet5
from hpcdl.training import checkpoint as checkpoints
from hpcdl.training.devices import on_devices
from hpcdl.training.momentum import Momentum

DATA = {"digits": lambda: digits(size=28), "mnist": mnist, "cifar10": cifar10}


class Trained(NamedTuple):
    """A rank's result: accuracy on held-out images, seconds of training, and the SHA-256 of its weights.

    `replicas` counts the ranks whose weights equal rank 0's bit for bit.
    """

    accuracy: float
    seconds: float
    fingerprint: str
    replicas: int


def train(
    comm: Communicator,
    report: Callable[[dict], None] = lambda record: None,
    epochs: int = 15,
    batch: int = 64,
    lr: float = 0.02,
    *,
    data: str = "digits",
    seed: int = 0,
    bucket_mb: float = 4.0,
    overlap: bool = True,
    all_reduce: str = "ring",
    device: str = "cpu",
    checkpoint: str | None = None,
    every: int = 50,
    before_step: Callable[[int], None] = lambda step: None,
) -> Trained:
    """Train on `comm`'s ranks with global batches of `batch` images; call `report` with a dict after every step.

    The same `seed` gives the same weights bit for bit. With `checkpoint`, a file, rank 0 writes the state every `every`
    steps, and a run that finds the file continues from there. `before_step(step)` is called on every rank before each
    step, step 0 first, for example to slow a rank down. A record has

    - `step` steps done, `epoch` the same in epochs, `loss` of this rank's images (NaN without one), `mean_loss` of all
      ranks' images, `images` of this rank and `images_per_second`;
    - seconds of this step: `load` images, `compute` (forward, backward, update), `communicate` (buckets in flight,
      hidden or not), `wait` (this rank was idle for them), `total`;
    - `spans`, a list of (name, start, end): "forward", "backward", "wait", "update" and "bucket 0", "bucket 1", ...,
      seconds since the step began.

    Raises ValueError on every rank if their data or settings differ, or if `epochs` or `every` is below 1, and
    FloatingPointError if the loss is not finite, before it corrupts the weights.
    """
    _require_positive(epochs=epochs, every=every)
    settings = {"data": data, "batch": batch, "lr": lr, "seed": seed, "ranks": comm.size}
    settings |= {
        "bucket_mb": bucket_mb,
        "all_reduce": all_reduce,
    }  # they decide the last bit of sums
    images = load(data, device)
    require_same("other data", contents(images), comm, "give every rank the same files")
    require_same(
        "other settings", [f"{name}={value}" for name, value in settings.items()], comm, "start all with the same"
    )
    torch.manual_seed(wrapped(seed + comm.rank))  # replicas start differently ...
    model = lenet5(channels=images.x.shape[1]).to(device)
    ddp = DistributedDataParallel(model, comm, bucket_mb, overlap, all_reduce)  # ... and are made equal
    optimizer = Momentum(model.parameters(), lr)
    sampler = ShardedSampler(len(images.y), batch, comm.rank, comm.size, seed)
    done = checkpoints.resume(checkpoint, ddp, optimizer, settings) if checkpoint else 0
    begin = time.perf_counter()
    for step, mine in sampler.shares(done, epochs * sampler.steps):
        before_step(step)
        record = take_step(ddp, optimizer, images, mine, step)
        if checkpoint and (step + 1) % every == 0:
            checkpoints.save(checkpoint, step + 1, ddp, optimizer, settings)
        report(record | {"epoch": (step + 1) / sampler.steps})
    seconds = time.perf_counter() - begin
    correct = accuracy(model, images, comm)
    return Trained(correct, seconds, fingerprint(model), identical_replicas(model, comm))


def _require_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is {count}; it is a number of times, 1 or more")


def train_on_devices(
    comm: Communicator, report: Callable[[dict], None] = lambda record: None, *args: Any, **options: Any
) -> Trained:
    """Run `train` on the GPUs of the ranks' machines, with NCCL or gloo between them, or on CPUs if there are none.

    A notebook's engines make the same call on any machine; rank 0 prints how GPUs are shared.
    """
    with on_devices(comm) as (group, device, remark):
        if remark and comm.rank == 0:
            print(remark, flush=True)
        return train(group, report, *args, device=device, **options)


def take_step(ddp: DistributedDataParallel, optimizer: Momentum, images: Split, mine: torch.Tensor, step: int) -> dict:
    """Take one step on this rank's images `mine`; return its record as in `train`."""
    timer, loss = StepTimer(ddp.comm.clock), math.nan
    x, y = images.x[mine], images.y[mine]
    timer("load")
    optimizer.zero_grad()
    if len(mine):
        outcome = cross_entropy(ddp(x), y)
        timer("forward")
        outcome.backward()
        timer("backward")
        loss = outcome.item()
    mean_loss = ddp.synchronize(loss)
    timer("wait")
    assert mean_loss is not None  # a loss is given, NaN if this rank has no image
    if not math.isfinite(mean_loss):
        raise FloatingPointError(
            f"step {step}: the mean loss of all ranks is {mean_loss} (rank {ddp.comm.rank}'s: {loss}); the weights are "
            "still those of the step before: try a smaller learning rate, and look for NaN in the data"
        )
    optimizer.step()
    timer("update")
    return timer.record(len(mine), ddp.spans) | {"step": step + 1, "loss": loss, "mean_loss": mean_loss}


class StepTimer:
    """A stopwatch: each call ends a span that began at the end of the previous one."""

    def __init__(self, clock: Callable[[], float]):
        self.clock, self.begin = clock, clock()
        self.spans: list[tuple[str, float, float]] = []

    def __call__(self, name: str) -> None:
        start = self.spans[-1][2] if self.spans else 0.0
        self.spans.append((name, start, self.clock() - self.begin))

    def record(self, images: int, buckets: list[BucketSpan]) -> dict:
        """Return where the seconds went, and the images per second."""
        seconds = {name: end - start for name, start, end in self.spans}
        under_way = [(f"bucket {b.bucket}", b.start - self.begin, b.end - self.begin) for b in buckets]
        total = self.spans[-1][2]
        return {
            "images": images,
            "images_per_second": images / total if total else math.inf,
            "load": seconds["load"],
            "compute": sum(seconds.get(name, 0.0) for name in ("forward", "backward", "update")),
            "communicate": sum(end - start for _, start, end in under_way),
            "wait": seconds["wait"],
            "total": total,
            "spans": self.spans + under_way,
        }


def load(data: str, device: str = "cpu") -> Split:
    """Load the images by name: 28 x 28 pixels, with mean 0 and deviation 1 over the training images, which helps
    descent.

    CIFAR-10's are cropped to their centre. Raises ValueError for a name that is not in `DATA`.
    """
    if data not in DATA:
        raise ValueError(f"data is {data!r}; the data sets are {', '.join(DATA)}")
    split = DATA[data]()
    mean, deviation = split.x.mean(), split.x.std()
    cut = (split.x.shape[-1] - 28) // 2
    inside = slice(cut, cut + 28)
    x, held_out = ((x[..., inside, inside] - mean) / deviation for x in (split.x, split.x_held_out))
    return Split(*(tensor.to(device) for tensor in (x, split.y, held_out, split.y_held_out)))


def contents(images: Split) -> list[str]:
    """Return an identification of data: numbers of images, and a checksum of each part."""
    sums = (hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16] for tensor in images)
    return [f"{len(images.y)} images to learn from", f"{len(images.y_held_out)} held out", *sums]


@torch.no_grad()
def accuracy(model: nn.Module, images: Split, comm: Communicator) -> float:
    """Return the fraction of held-out images that `model` classifies correctly; each rank checks its share."""
    mine = slice(comm.rank, None, comm.size)
    right = (model(images.x_held_out[mine]).argmax(1) == images.y_held_out[mine]).sum()
    right = right.to(comm.devices[0])
    naive_all_reduce(right, comm)
    return right.item() / len(images.y_held_out)
