"""A mean gradient lies in memory as autograd lays it out: fused optimizers read weights and gradients in that order."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.in_flight import InFlight
from hpcdl.parallel.gradients import sum_gradients

P = 2
WEIGHTS = {
    "in order": lambda: torch.arange(12.0).view(4, 3),
    "transposed": lambda: torch.arange(12.0).view(3, 4).t(),
    "channels last": lambda: torch.arange(24.0).view(2, 2, 2, 3).to(memory_format=torch.channels_last),
    "permuted": lambda: torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
}


class Product(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.weight, self.bias = nn.Parameter(WEIGHTS[kind]() / 10 - 0.5), nn.Parameter(torch.ones(2))

    def forward(self, x):
        return (x.view(-1, *[1] * self.weight.dim()) * self.weight).tanh().flatten(1).sum(1) + self.bias.sum()


def in_buckets(model, comm, **options):
    wrapped = DistributedDataParallel(model, comm, **options)
    return wrapped, wrapped.synchronize


def one_by_one(model, comm):
    return in_buckets(model, comm, bucket_mb=1e-6)


def in_flight(model, comm):
    return model, lambda: InFlight(list(model.parameters()), 1, comm).finish()


def train(model, x, call, synchronize=lambda: None, scale=1):
    """Weights and the strides of gradients after three steps."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        (call(x).square().mean() / scale).backward()
        synchronize()
        optimizer.step()
    return [param.detach().clone() for param in model.parameters()], [p.grad.stride() for p in model.parameters()]


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("wrap", [in_buckets, one_by_one, in_flight, sum_gradients])
def test_fused_steps_on_ranks(wrap, kind):
    """Weights and the layout of gradients are those of one process."""
    x, whole = torch.arange(1.0, 5.0), Product(kind)
    weights, strides = train(whole, x, whole)

    def rank(comm):
        model, mine = Product(kind), x.tensor_split(P)[comm.rank]
        if wrap is sum_gradients:
            return train(model, mine, model, lambda: sum_gradients(model.parameters(), comm), scale=P)
        return train(model, mine, *wrap(model, comm))

    for found, laid_out in simulate(rank, P).results:
        torch.testing.assert_close(found, weights)
        assert laid_out == strides
