"""Replicas that drift apart are found, however slowly, and rounding is not drift."""

import pytest
import torch

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import RankError, simulate
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
