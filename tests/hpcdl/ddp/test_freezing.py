"""Parameters that are frozen when the wrapper makes new buckets, and are unfrozen later."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel

P, STEPS = 2, 8


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model.double()


def thaw(model):
    model[0].requires_grad_(True)


def thaw_half(model):
    model[0].bias.requires_grad_(True)


def convert(model):
    model.double()


def nothing(model):
    """With bucket_mb="auto" there are new buckets after some steps."""


def train(model, module, change, x, synchronize=lambda: None):
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    for step in range(STEPS):
        if step == 1:
            module[2].requires_grad_(False)
            change(model if change is convert else module)
        if step == 6:
            module.requires_grad_(True)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        synchronize()
        optimizer.step()
    return module.state_dict()


@pytest.mark.parametrize("options", [{}, {"overlap": False}, {"bucket_mb": 1e-6}, {"bucket_mb": "auto"}])
@pytest.mark.parametrize("change", [thaw, thaw_half, convert, nothing])
def test_new_buckets_with_frozen_parameters(change, options):
    x, whole = torch.arange(15.0, dtype=torch.float64).view(5, 3) / 15, build()
    expected = train(whole, whole, change, x)

    def rank(comm):
        model = DistributedDataParallel(build(), comm, **options)
        return train(model, model.module, change, x.tensor_split(P)[comm.rank], model.synchronize)

    for found in simulate(rank, P).results:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
