"""Train LeNet-5 on the handwritten digits, data-parallel.

mpiexec -n 4 python -m hpcdl.ddp.train --epochs 15
"""

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from hpcdl.data import Split, digits
from hpcdl.ddp.naive import broadcast_parameters, fingerprint, identical_replicas, train_step
from hpcdl.nn.lenet import lenet5


class Trained(NamedTuple):
    """What a rank has at the end: accuracy on held-out images, seconds of training, the SHA-256 of its weights.

    `replicas` counts the ranks whose weights are rank 0's to the last bit.
    """

    accuracy: float
    seconds: float
    fingerprint: str
    replicas: int


class Momentum:
    """Descent with momentum, `v <- beta v + g`, `w <- w - lr v`, for `params`; without a gradient a parameter stays.

    `torch.optim.SGD` does the same; to import it brings torch's compiler, 70 MB in each engine.
    """

    def __init__(self, params, lr: float, beta: float = 0.9):
        self.params, self.lr, self.beta = list(params), lr, beta
        self.velocities = [torch.zeros_like(param) for param in self.params]

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for param, v in zip(self.params, self.velocities, strict=True):
            if param.grad is not None:
                v.mul_(self.beta).add_(param.grad)
                param.sub_(v, alpha=self.lr)


def train(comm, report: Callable, epochs: int = 15, batch: int = 64, lr: float = 0.02) -> Trained:
    """Train on `comm`'s ranks with global batches of `batch` images; call `report` with a dict after every step.

    Each step reports `epoch` (how many are done, with fraction), `loss` and `images_per_second`, both of this rank.
    """
    data = standardized(digits(size=28))
    torch.manual_seed(comm.rank)  # replicas start differently ...
    model = lenet5()
    broadcast_parameters(model.parameters(), comm)  # ... and are made equal
    optimizer = Momentum(model.parameters(), lr)
    begin = time.perf_counter()
    for epoch in range(epochs):
        order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(epoch))  # the same on every rank
        steps = order.split(batch)
        for step, chosen in enumerate(steps, start=1):
            mine = chosen[comm.rank :: comm.size]
            start = time.perf_counter()
            loss = train_step(model, cross_entropy, data.x[mine], data.y[mine], optimizer, comm)
            rate = len(mine) / (time.perf_counter() - start)
            report({"epoch": epoch + step / len(steps), "loss": loss, "images_per_second": rate})
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        accuracy = (model(data.x_held_out).argmax(1) == data.y_held_out).float().mean().item()
    return Trained(accuracy, seconds, fingerprint(model), identical_replicas(model, comm))


def standardized(data: Split) -> Split:
    """Pixels with mean 0 and standard deviation 1 over the training images: descent is faster from there."""
    mean, deviation = data.x.mean(), data.x.std()
    return data._replace(x=(data.x - mean) / deviation, x_held_out=(data.x_held_out - mean) / deviation)


def main() -> None:
    """The program: rank 0 prints one line per epoch and the result."""
    parser = argparse.ArgumentParser(prog="python -m hpcdl.ddp.train", description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64, help="images per step, all ranks together")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate")
    options = parser.parse_args()
    from hpcdl.comm import MPIComm

    torch.set_num_threads(1)  # the ranks share this machine's cores
    comm = MPIComm()

    def report(record):
        if comm.rank == 0 and record["epoch"].is_integer():
            print("epoch {epoch:.0f}: loss {loss:.3f}, {images_per_second:.0f} images/s on this rank".format(**record))

    trained = train(comm, report, options.epochs, options.batch, options.lr)
    if comm.rank == 0:
        print(f"{comm.size} ranks, {trained.seconds:.1f} s: held-out accuracy {trained.accuracy:.1%}")
        print(f"{trained.replicas} of {comm.size} replicas agree to the last bit ({trained.fingerprint[:12]})")


if __name__ == "__main__":
    main()
