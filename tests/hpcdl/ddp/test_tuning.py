"""`bucket_mb="auto"`: the right sums, the same buckets on every rank, and steps no slower than 25 MB's on any link."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.cost import collectives as cost
from hpcdl.cost.scaling import Gradient, finished, merged
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.tuning import MEASURED, WARM, Arrivals

WIDTHS, SECONDS = (40, 10, 30, 20, 50, 50, 5, 60, 5), 0.25  # of the layers; backward of each
STEPS = WARM + MEASURED
SIZES = [4 * a * b for a, b in pairwise(WIDTHS)][::-1]


class Chain(nn.Module):
    """Linear layers whose backward passes take SECONDS each."""

    def __init__(self, comm):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(WIDTHS))
        self.comm = comm

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x.register_hook(lambda grad: self.comm.compute(SECONDS))
        return x


def trained(comm, bucket_mb, overlap=True, steps=STEPS + 1):
    """Seconds of each step, the last one's gradients, and the sizes of the last buckets."""
    ddp, seconds = DistributedDataParallel(Chain(comm), comm, bucket_mb, overlap), []
    for _ in range(steps):
        ddp.zero_grad()
        comm.barrier()
        begin = comm.clock()
        ddp(torch.full((2, WIDTHS[0]), 1.0 + comm.rank)).mean().backward()
        ddp.synchronize()
        seconds.append(comm.clock() - begin)
    grads = torch.cat([param.grad.flatten() for param in ddp.parameters()])
    return seconds, grads, [[param.nbytes for param in bucket.params] for bucket in ddp.reducer.buckets]


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
@pytest.mark.parametrize("p", [1, 3])
def test_the_mean_is_right_before_and_after_the_buckets_change(p, overlap):
    for steps in (STEPS, STEPS + 2):
        run = simulate(trained, p, "auto", overlap, steps, alpha=0.05, beta=1e-5)
        for _, grads, _ in run.results:
            model = Chain(type("Alone", (), {"compute": lambda self, seconds: None})())
            model(torch.full((2, WIDTHS[0]), 1.0 + (p - 1) / 2)).mean().backward()
            torch.testing.assert_close(grads, torch.cat([param.grad.flatten() for param in model.parameters()]))


@pytest.mark.parametrize("p", [2, 5])
def test_every_rank_takes_the_buckets_of_rank_0_whatever_it_measured(p):
    run = simulate(trained, p, "auto", alpha=0.02, beta=1e-4, slow={p - 1: 3.0})
    buckets = [found for *_, found in run.results]
    assert all(found == buckets[0] for found in buckets)
    assert [nbytes for bucket in buckets[0] for nbytes in bucket] == SIZES  # every gradient once, in order
    assert 1 < len(buckets[0]) < len(SIZES)


LINKS = [(0.0, 0.0), (1e-3, 1e-7), (0.05, 1e-5), (0.02, 2e-4), (0.3, 1e-6), (1e-4, 1e-3)]


@pytest.mark.parametrize(("alpha", "beta"), LINKS)
@pytest.mark.parametrize("p", [2, 4])
def test_a_step_is_never_slower_than_with_buckets_of_25_mb(p, alpha, beta):
    ours, theirs = (
        max(seconds[-1] for seconds, *_ in simulate(trained, p, bucket_mb, alpha=alpha, beta=beta).results)
        for bucket_mb in ("auto", 25.0)
    )
    assert ours <= theirs * (1 + 1e-6)
    if (alpha, beta) == (0.02, 2e-4):
        assert theirs > 1.1 * ours


def test_the_buckets_are_those_that_the_cost_model_finds_best():
    p, alpha, beta = 3, 0.02, 2e-4
    _, _, found = simulate(trained, p, "auto", alpha=alpha, beta=beta).results[0]

    def all_reduce(nbytes):
        return cost.ring(p, nbytes, alpha, beta)

    ready = [Gradient(SECONDS * (i + 1), nbytes) for i, nbytes in enumerate(SIZES)]
    done, buckets = 0, []
    for bucket in found:
        done += len(bucket)
        buckets.append(Gradient(ready[done - 1].ready, sum(bucket)))
    assert finished(buckets, all_reduce) == pytest.approx(finished(merged(ready, all_reduce), all_reduce), rel=1e-3)


def test_gradients_of_two_dtypes_share_no_bucket():
    def rank(comm):
        model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3).double(), nn.Linear(3, 3)])
        model.forward = lambda x: model[2](model[1](model[0](x).double()).float())
        ddp = DistributedDataParallel(model, comm, bucket_mb="auto")
        for _ in range(STEPS + 1):
            ddp.zero_grad()
            ddp(torch.ones(1, 3)).mean().backward()
            ddp.synchronize()
        return [{param.dtype for param in bucket.params} for bucket in ddp.reducer.buckets]

    for dtypes in simulate(rank, 2, alpha=1.0, beta=1e-9).results:
        assert all(len(of) == 1 for of in dtypes)
        assert len(dtypes) == 3


def test_gradients_are_ready_in_order():
    params = [torch.zeros(1) for _ in range(3)]
    arrivals = Arrivals(params)
    for step in range(WARM + MEASURED):
        assert not arrivals.enough
        arrivals.begin(10.0)
        arrivals.note(params[0], 12.0 + (step == 2))
        arrivals.note(params[1], 11.0)
        arrivals.end_step()
        arrivals.end_step()  # a step without a gradient does not count
    assert arrivals.enough
    assert arrivals.ready() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("wrong", ["best", 0, -1.0])
def test_what_is_no_size_is_refused(wrong):
    def rank(comm):
        with pytest.raises(ValueError, match=r'bucket_mb is .*such as 1, or it is "auto"'):
            DistributedDataParallel(nn.Linear(1, 1), comm, bucket_mb=wrong)

    simulate(rank, 1)
