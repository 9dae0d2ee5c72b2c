"""A rank without samples only synchronizes, also where its parameters have gradients of an earlier step."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel


def zeros(model, optimizer):
    optimizer.zero_grad(set_to_none=False)


def kept(model, optimizer):
    """Accumulate: the next round adds to the mean."""


def of_a_layer(model, optimizer):
    model[0].zero_grad()


@pytest.mark.parametrize("options", [{}, {"bucket_mb": 1e-6}, {"overlap": False}])
@pytest.mark.parametrize("end", [zeros, kept, of_a_layer])
def test_a_rank_without_samples_may_have_earlier_gradients(end, options):
    x = torch.arange(6.0).view(3, 2) / 6

    def train(model, synchronize=lambda: None, rows=lambda x: x):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for batch in (x, x[:1], x):
            if len(rows(batch)):
                model(rows(batch)).square().mean().backward()
            synchronize()
            optimizer.step()
            end(getattr(model, "module", model), optimizer)

    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))

    def rank(comm):
        model = DistributedDataParallel(build(), comm, **options)
        train(model, model.synchronize, lambda x: x.tensor_split(2)[comm.rank])
        return model.module.state_dict()

    whole = build()
    train(whole)
    for found in simulate(rank, 2).results:
        torch.testing.assert_close(found, whole.state_dict())
