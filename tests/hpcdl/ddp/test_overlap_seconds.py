"""Overlap in virtual time: a step of DistributedDataParallel takes the seconds that the cost model predicts."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.cost import collectives as cost
from hpcdl.cost.scaling import Gradient, capped, iteration
from hpcdl.ddp import DistributedDataParallel

WIDTHS, SECONDS = (40, 10, 30, 20, 5), 0.25  # of the layers; backward of each
ALPHA, BETA = 0.01, 1e-4


def timed_step(comm, cap, overlap):
    """One step of a chain of layers whose backward passes take SECONDS each; when it ended."""
    layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(WIDTHS))

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                x.register_hook(lambda grad: comm.compute(SECONDS))
            return x

    ddp = DistributedDataParallel(Chain(), comm, cap / 2**20, overlap)
    comm.barrier()
    begin = comm.clock()
    ddp(torch.ones(2, WIDTHS[0])).mean().backward()
    ddp.synchronize()
    return comm.clock() - begin, ddp.spans, ddp.waited, begin


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
@pytest.mark.parametrize("cap", [2400, 2800, 3700, 1e6])
@pytest.mark.parametrize("p", [2, 3, 5])
def test_a_step_takes_the_seconds_of_the_cost_model(p, cap, overlap):
    def all_reduce(nbytes):
        if nbytes == ballot.nbytes:
            return cost.recursive_doubling(p, nbytes, ALPHA, BETA, itemsize=8)
        return cost.ring(p, nbytes, ALPHA, BETA)

    sizes = [4 * a * b for a, b in pairwise(WIDTHS)][::-1]
    ready = [Gradient(SECONDS * (i + 1), nbytes) for i, nbytes in enumerate(sizes)]
    ballot = Gradient(ready[-1].ready, 8 * (8 + len(sizes)))
    predicted = iteration(0.0, [*capped(ready, cap=cap), ballot], all_reduce, overlap=overlap).seconds
    run = simulate(timed_step, p, cap, overlap, alpha=ALPHA, beta=BETA)
    assert max(seconds for seconds, *_ in run.results) == pytest.approx(predicted)
    for seconds, spans, waited, begin in run.results:
        last_gradient = begin + SECONDS * len(sizes)
        assert (spans[0].start < last_gradient) == (overlap and len(spans) > 1)
        assert waited == pytest.approx(begin + seconds - last_gradient)
