"""LeNet-5 on digits with parameter servers, as a program.

    mpiexec -n 4 python -m hpcdl.training.asynchronous --staleness 3 --snapshots servers

The first ranks are servers, the others workers that draw their own batches. A staleness of 0 is BSP, without one it is
ASP.
"""

import statistics
from collections.abc import Callable
from typing import Annotated, NamedTuple

import torch
import typer
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import Communicator
from hpcdl.consistency import ASP, Served, Server, Worker
from hpcdl.data import Split
from hpcdl.data.seeds import wrapped
from hpcdl.nn.lenet import lenet5
from hpcdl.training.program import ranks
from hpcdl.training.train import load

BATCH = 32


class Asynchronous(NamedTuple):
    """A rank's result: what it `served`, or for a worker its `accuracy` on held-out images and its share of waiting."""

    served: Served | None = None
    accuracy: float | None = None
    waiting: float = 0.0


def train_asynchronously(
    comm: Communicator,
    steps: int = 200,
    servers: int = 1,
    staleness: float = ASP,
    lr: float = 0.05,
    seed: int = 0,
    snapshots: str | None = None,
    every: int = 50,
    before_step: Callable[[int], None] = lambda step: None,
) -> Asynchronous:
    """Train for `steps` iterations on each worker, with batches of 32 drawn from `seed`, its rank and the iteration.

    Each gradient is a step of lr / workers on the servers. `before_step(step)` is called on every worker before each
    iteration, for example to slow one down. Raises FloatingPointError on a worker whose loss is not finite; the others
    continue.
    """
    torch.manual_seed(wrapped(seed))
    model, workers = lenet5(), comm.size - servers
    w = nn.utils.parameters_to_vector(model.parameters()).detach()
    if comm.rank < servers:
        server = Server(
            comm, w, lambda params: torch.optim.SGD(params, lr / workers), servers, staleness, snapshots, every
        )
        return Asynchronous(served=server.serve())
    images, begin, waited = load("digits"), comm.clock(), 0.0
    with Worker(comm, w, servers) as worker:
        while worker.clock < steps:
            before_step(worker.clock)
            gradient = _gradient(model, worker.w, images, (seed * steps + worker.clock) * comm.size + comm.rank)
            asked = comm.clock()
            worker.push_and_pull(gradient)
            waited += comm.clock() - asked
    share = waited / max(comm.clock() - begin, 1e-9)
    return Asynchronous(accuracy=_accuracy(model, worker.w, images), waiting=share)


def _gradient(model: nn.Module, w: torch.Tensor, images: Split, seed: int) -> torch.Tensor:
    nn.utils.vector_to_parameters(w, model.parameters())
    mine = torch.randint(len(images.y), (BATCH,), generator=torch.Generator().manual_seed(wrapped(seed)))
    loss = cross_entropy(model(images.x[mine]), images.y[mine])
    if not loss.isfinite():
        raise FloatingPointError(f"the loss is {loss.item()}; try a smaller learning rate, or less staleness")
    return nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


@torch.no_grad()
def _accuracy(model: nn.Module, w: torch.Tensor, images: Split) -> float:
    nn.utils.vector_to_parameters(w, model.parameters())
    return (model(images.x_held_out).argmax(1) == images.y_held_out).float().mean().item()


def main(
    steps: Annotated[int, typer.Option(help="Iterations of each worker.")] = 200,
    servers: Annotated[int, typer.Option(help="The first ranks serve the weights, the others work.")] = 1,
    staleness: Annotated[int | None, typer.Option(help="Iterations ahead of the slowest; 0 is BSP, none ASP.")] = None,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Of the weights and the batches.")] = 0,
    snapshots: Annotated[str | None, typer.Option(help="Servers save here, and continue from it.")] = None,
    every: Annotated[int, typer.Option(help="Updates between two savings.")] = 50,
) -> None:
    """Train LeNet-5 on digits with servers, and workers that wait for each other only as long as they must."""
    with ranks() as (comm, _):
        trained = train_asynchronously(
            comm, steps, servers, ASP if staleness is None else staleness, lr, seed, snapshots, every
        )
        if trained.served is not None:
            old = [update.staleness for update in trained.served.log] or [0]
            print(f"server {comm.rank}: {len(old)} gradients, {statistics.mean(old):.2f} updates old on average")
        else:
            waiting = f"{100 * trained.waiting:.0f} % of its time waiting"
            print(f"worker {comm.rank}: accuracy {100 * (trained.accuracy or 0.0):.1f} %, {waiting}")


if __name__ == "__main__":
    typer.run(main)
