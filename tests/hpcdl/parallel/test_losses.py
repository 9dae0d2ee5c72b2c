"""A loss that sends messages is found before it is tried: only this rank would send them."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from hpcdl.comm import simulate
from hpcdl.parallel import Mesh
from hpcdl.parallel.pipeline.losses import reaches_communicator

COMM = None


def with_argument(y, target, comm):
    return comm.all_reduce(mse_loss(y, target))


def with_global(y, target):
    return with_argument(y, target, COMM)


class Module(nn.Module):
    def __init__(self, comm):
        super().__init__()
        self.comm = comm

    def forward(self, y, target):
        return with_argument(y, target, self.comm)


def speaking(comm):
    """Return a loss for each way to a communicator."""
    mesh, boxed = Mesh(comm), [{"comm": comm}]
    return {
        "closure": lambda y, target: with_argument(y, target, comm),
        "closure of a mesh": lambda y, target: with_argument(y, target, mesh.data),
        "partial": functools.partial(with_argument, comm=comm),
        "default": lambda y, target, comm=comm: with_argument(y, target, comm),
        "module": Module(comm),
        "method": Module(comm).forward,
        "global": with_global,
        "collections": lambda y, target: with_argument(y, target, boxed[0]["comm"]),
    }


NAMES = tuple(speaking(simulate(lambda comm: comm, 1).results[0]))


@pytest.mark.parametrize("name", NAMES)
def test_communicator_is_found(name, monkeypatch):
    (comm,) = simulate(lambda comm: comm, 1).results
    monkeypatch.setitem(globals(), "COMM", comm)
    assert reaches_communicator(speaking(comm)[name])


def test_plain_losses_have_none():
    weights, rows = torch.ones(3), list(range(10_000))

    def late(y, target):
        return unset + mse_loss(y, target)

    for loss in (mse_loss, nn.MSELoss(), late, lambda y, target: (weights * (y - target) ** 2 * len(rows)).mean()):
        assert not reaches_communicator(loss)
    unset = 0.0
    assert late(weights, weights) == unset
