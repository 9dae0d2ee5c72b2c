"""`sum_gradients` in loops of all forms against one process: the sum, or a sentence; never a sum of sums."""

import re

import pytest
import torch
from torch import nn

from hpcdl.comm import Group, RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.parallel import cut_batch, run_stage, sum_gradients
from hpcdl.parallel.pipeline import FusedLayers, Layers
from hpcdl.parallel.schedules import one_f_one_b

STEPS, ROWS, P, RATE = 3, 8, 2, 0.1


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def rows(step, part):
    """Of each step and each of its two passes."""
    return torch.randn(ROWS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2 * step + part))


def right(steps=STEPS):
    """The weights after plain steps with two passes each."""
    model = net()
    for step in range(steps):
        loss = sum(mean_square(model(rows(step, part))) for part in range(2))
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for param, grad in zip(model.parameters(), grads, strict=True):
                param -= RATE * grad
    return [param.detach() for param in model.parameters()]


def mean_square(y, _=None):
    return y.square().sum(1).mean()


def plain(model, comm, x):
    (mean_square(model(x)) * len(x) / ROWS).backward()


def pipelined(kind):
    def run(model, comm, x):
        options = {"total": ROWS, "dtype": torch.float64}
        run_stage(
            Group(comm, [comm.rank]), [kind(model)], one_f_one_b(1, 2), cut_batch(x, x, 2), mean_square, (2,), **options
        )

    return run


PASSES = {"plain": plain, "layers": pipelined(Layers), "fused": pipelined(FusedLayers)}


def trained(comm, run, each, drop):
    """The weights after steps with two passes and a sum after the last, or after `each`."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for step in range(STEPS):
        for part in range(2):
            run(model, comm, rows(step, part).tensor_split(comm.size)[comm.rank])
            if each or part:
                sum_gradients(model.parameters(), comm)
        torch.autograd.grad(model(rows(0, 0)).sum(), list(model.parameters()))  # adds to no gradient
        optimizer.step()
        drop(optimizer)
    return [param.detach() for param in model.parameters()]


DROPS = {
    "none": lambda optimizer: optimizer.zero_grad(),
    "zeros": lambda optimizer: optimizer.zero_grad(set_to_none=False),
    "never": lambda optimizer: None,
}


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("each", [False, True])
def test_a_sum_is_right_or_refused(each, drop):
    if each or drop == "never":
        with pytest.raises(RankError, match="is a sum over ranks, and backward adds one rank's to it; call sum_gradi"):
            simulate(trained, P, plain, each, DROPS[drop])
        return
    for found in simulate(trained, P, plain, each, DROPS[drop]).results:
        torch.testing.assert_close(found, right(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["layers", "fused"])
def test_a_pipeline_adds_to_no_sum(kind):
    with pytest.raises(RankError, match="is a sum over ranks, and backward adds one rank's to it"):
        simulate(trained, P, PASSES[kind], True, DROPS["none"])
    for drop in ("none", "zeros"):
        for found in simulate(trained, P, PASSES[kind], False, DROPS[drop]).results:
            torch.testing.assert_close(found, right(), rtol=1e-12, atol=1e-12)


def test_a_gradient_is_summed_once_over_the_same_ranks_and_once_over_others():
    def run(comm):
        pairs = (
            Group(comm, [comm.rank // 2 * 2, comm.rank // 2 * 2 + 1]),
            Group(comm, [comm.rank % 2, comm.rank % 2 + 2]),
        )
        param = nn.Parameter(torch.ones(3))
        (param * 2**comm.rank).sum().backward()
        for pair in pairs:
            sum_gradients([param], pair)
        assert param.grad.tolist() == [15] * 3
        with pytest.raises(RuntimeError, match=re.escape("is the sum over these ranks already; call it once")):
            sum_gradients([param], pairs[0])
        return True

    assert all(simulate(run, 4).results)


def test_dtypes_are_summed_apart():
    def run(comm):
        params = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float64)]
        sum((param * (comm.rank + 1)).sum() for param in params).backward()
        sum_gradients(params, comm)
        return [(param.grad.dtype is param.dtype, param.grad.tolist()) for param in params]

    assert simulate(run, P).results == [[(True, [3.0, 3.0])] * 3] * P


def test_data_parallelism_within_keeps_its_gradients():
    """A wrapper over some ranks, and a sum over the others, over several steps."""

    def run(comm):
        model = net()
        data, others = (
            Group(comm, [comm.rank // 2 * 2, comm.rank // 2 * 2 + 1]),
            Group(comm, [comm.rank % 2, comm.rank % 2 + 2]),
        )
        wrapped = DistributedDataParallel(model, data)
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        for step in range(STEPS):
            x = torch.cat([rows(step, 0), rows(step, 1)]).tensor_split(4)[comm.rank]
            mean_square(wrapped(x)).backward()
            wrapped.synchronize()
            sum_gradients(model.parameters(), others)
            optimizer.step()
            optimizer.zero_grad()
        return [param.detach() for param in model.parameters()]

    for found in simulate(run, 4).results:
        torch.testing.assert_close(found, right(), rtol=1e-12, atol=1e-12)
