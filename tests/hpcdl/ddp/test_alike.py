"""Replicas that drift apart are found, however slowly, and rounding is not drift."""

import pytest
import torch
from torch import nn

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.alike import ReplicaComparison


def compare(comm, weights, steps, change):
    replicas = ReplicaComparison([weights])
    for _ in range(steps):
        sums = torch.tensor(replicas.votes(comm), dtype=torch.float64)
        naive_all_reduce(sums, comm)
        replicas.require(sums.tolist(), comm)
        if comm.rank:
            change(weights)


@pytest.mark.parametrize("drift", [1e-6, 1e-5, 1e-3])
def test_slow_drift_is_refused(drift):
    """A difference that is too small in the first steps is found when it has grown."""
    with pytest.raises(RankError, match=r"rank 1 has another parameter of shape \(8,\) than rank 0"):
        simulate(lambda comm: compare(comm, torch.ones(8), 300, lambda w: w.mul_(1 + drift)), 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_drift(dtype):
    """Another last bit, as processors of another make would round."""
    last_bit = 1 + torch.finfo(dtype).eps
    simulate(lambda comm: compare(comm, torch.ones(8, dtype=dtype), 40, lambda w: w.fill_(last_bit)), 2)


def test_gradients_of_a_generators_parameters_are_torchs():
    """A wrapper reads which parameters a pass is for, and a generator can be read once."""

    def rank(comm):
        layer = nn.Linear(2, 1)
        DistributedDataParallel(layer, comm)(torch.ones(1, 2)).sum().backward()
        right = [param.grad.clone() for param in layer.parameters()]
        found = torch.autograd.grad(layer(torch.ones(1, 2)).sum(), (param for param in layer.parameters()))
        layer.zero_grad()
        layer(torch.ones(1, 2)).sum().backward(inputs=list(layer.parameters()))
        edge = torch.autograd.graph.get_gradient_edge(layer.weight)
        (of_edge,) = torch.autograd.grad(layer(torch.ones(1, 2)).sum(), edge)
        return all(map(torch.equal, found, right)) and torch.equal(of_edge, right[0])

    assert simulate(rank, 1).results == [True]
