"""A small network in float64, and its training on one machine or on ranks."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

F64 = torch.float64


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2)).double()


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(6, 3, generator=generator, dtype=F64), torch.randn(6, 2, generator=generator, dtype=F64)


def learn(model, optimizer, steps, comm=None, schedule=None):
    """Steps over the samples of all ranks, unequally many each."""
    for step in steps:
        x, y = batch(step)
        if comm is not None:
            x, y = (t[comm.rank :: comm.size] for t in (x, y))
            optimizer.count(len(x))
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()
        if schedule:
            schedule.step()


def weights(model):
    return [param.detach().clone() for param in model.parameters()]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
