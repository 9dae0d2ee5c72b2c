"""What goes wrong with DistributedDataParallel is said with the rank, the value and what to do; nothing stays."""

import contextlib
import copy
import gc
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from hpcdl.comm import CommError, RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.memory import MemoryMeter
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer


def run_ranks(p, body, model=lambda comm: nn.Linear(3, 2)):
    return simulate(lambda comm: body(DistributedDataParallel(model(comm), comm), comm), p)


def test_a_model_that_differs_is_named_on_every_rank():
    said = []

    def rank(comm):
        sizes = (4, 5 if comm.rank == 2 else 7, 2)
        with pytest.raises(ValueError, match="rank 2 has another model") as caught:
            DistributedDataParallel(nn.Sequential(nn.Linear(*sizes[:2]), nn.Linear(*sizes[1:])), comm)
        said.append(str(caught.value))

    simulate(rank, 4)
    assert said == [said[0]] * 4
    assert "0.weight (5, 4) float32 instead of 0.weight (7, 4) float32; build the same" in said[0]


def test_a_layer_frozen_on_one_rank_alone_is_named():
    def model(comm):
        return nn.Linear(3, 2).requires_grad_(comm.rank != 1)

    with pytest.raises(RankError, match=r"rank 1 has another model .* weight \(2, 3\) float32 frozen instead of"):
        run_ranks(2, lambda ddp, comm: None, model)


def test_a_nan_loss_of_one_rank_is_seen_by_all():
    def body(ddp, comm):
        ddp(torch.ones(2, 3)).mean().backward()
        return ddp.synchronize(float("nan") if comm.rank == 1 else 1.0)

    assert all(loss != loss for loss in run_ranks(3, body).results)


def test_a_step_without_a_single_sample_is_an_error():
    with pytest.raises(RankError, match="no rank has a sample"):
        run_ranks(2, lambda ddp, comm: ddp.synchronize())


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
def test_a_second_backward_before_synchronize_is_an_error(overlap):
    def rank(comm):
        ddp = DistributedDataParallel(nn.Linear(3, 2), comm, overlap=overlap)
        for loss in [ddp(torch.ones(2, 3)).sum() for _ in range(2)]:
            loss.backward()

    with pytest.raises(RankError, match="second backward came before synchronize"):
        simulate(rank, 2)


def test_a_forward_past_the_wrapper_is_an_error():
    with pytest.raises(RankError, match="call the wrapper, not its module"):
        run_ranks(1, lambda ddp, comm: ddp.module(torch.ones(2, 3)).mean().backward())


@pytest.mark.parametrize(
    ("options", "said"),
    [({"all_reduce": "star"}, "all_reduce is 'star'.*ring"), ({"bucket_mb": 0}, "bucket_mb is 0; a bucket holds more")],
)
def test_a_wrong_option_is_refused(options, said):
    with pytest.raises(RankError, match=said):
        simulate(lambda comm: DistributedDataParallel(nn.Linear(1, 1), comm, **options), 1)


def test_a_rank_that_raises_in_the_background_raises_in_synchronize():
    def broken(x, comm):
        raise CommError("the link is down")

    def rank(comm):
        ddp = DistributedDataParallel(nn.Linear(3, 2), comm, all_reduce=broken)
        ddp(torch.ones(2, 3)).mean().backward()
        ddp.synchronize()

    with pytest.raises(CommError, match="the link is down"):
        simulate(rank, 2)


def test_nothing_listens_when_the_wrapper_is_gone():
    def rank(comm):
        net = nn.Linear(3, 2)
        gc.disable()  # reference counts alone must do
        try:
            ddp = DistributedDataParallel(net, comm)
            ddp(torch.ones(2, 3)).mean().backward()
            ddp.synchronize()
            del ddp
            return len(net.weight._post_accumulate_grad_hooks or ())
        finally:
            gc.enable()

    assert simulate(rank, 2).results == [0, 0]


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
@pytest.mark.parametrize(
    "change",
    [
        lambda params: [param.grad.mul_(0.5) for param in params],
        lambda params: nn.utils.clip_grad_norm_(params, 0.1),
        lambda params: [setattr(param, "grad", None) for param in params],
        lambda params: sum((param.grad**2).sum() for param in params),
        lambda params: torch.stack([param.grad.abs().max() for param in params]),
        lambda params: torch.zeros(2, 3).copy_(params[0].grad),
    ],
    ids=["scaled", "clipped", "dropped", "squared", "maximum", "copied"],
)
def test_no_use_before_synchronize(overlap, change):
    """A gradient is on its way between backward and synchronize(), whenever it is sent."""

    def rank(comm):
        ddp = DistributedDataParallel(nn.Linear(3, 2), comm, overlap=overlap)
        ddp(torch.ones(2, 3)).mean().backward()
        change(list(ddp.parameters()))
        ddp.synchronize()

    with pytest.raises(RankError, match=r"between backward and synchronize\(\), on its way"):
        simulate(rank, 1)


READS = {
    "printed": lambda grad: f"{grad}",
    "formatted": lambda grad: f"{grad.flatten()[0]:.3f}",
    "an element": lambda grad: grad[0, 0].item(),
    "singular values": lambda grad: torch.linalg.svdvals(grad),
    "transposed": lambda grad: grad.T.norm(),
    "histogram": torch.histc,
}


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_rank_alone_reads_no_mean_gradient(read, stage):
    """What is computed, or printed, from a gradient before the step says whose it is."""

    def rank(comm):
        net = nn.Linear(3, 2)
        optimizer = ShardedOptimizer(net.parameters(), comm, partial(torch.optim.SGD, lr=0.1), stage)
        net(torch.ones(2, 3)).mean().backward()
        try:
            return read(net.weight.grad)
        except RuntimeError as error:
            return f"{error}"
        finally:
            optimizer.step()

    says = {
        1: "OfThisRank" if read is READS["printed"] else "this rank's samples only",
        2: "was sent to the other ranks",
    }
    assert all(says[stage] in said for said in simulate(rank, 2).results)


NORMS = {
    "training": (nn.BatchNorm1d(4), 2, True),
    "one rank": (nn.BatchNorm1d(4), 1, False),
    "eval": (nn.BatchNorm1d(4).eval(), 2, False),
    "instances": (nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2), nn.Flatten()), 2, False),
}


@pytest.mark.parametrize("wrap", ["ddp", "zero-1", "zero-3"])
@pytest.mark.parametrize(("norm", "p", "warns"), NORMS.values(), ids=NORMS)
def test_batch_norm_on_several_ranks_warns(norm, p, warns, wrap):
    """Each rank takes the means of its samples; no other layer is called batch norm."""

    def rank(comm):
        net = model = nn.Sequential(nn.Linear(3, 4), copy.deepcopy(norm), nn.Linear(4, 2))
        if wrap == "ddp":
            model = DistributedDataParallel(net, comm)
        elif wrap == "zero-1":
            ShardedOptimizer(net.parameters(), comm, partial(torch.optim.SGD, lr=0.1))
        else:
            model = FullyShardedDataParallel(net, comm)
        for _ in range(2):
            model(torch.arange(12.0).view(4, 3)).square().mean().backward()
            if wrap != "zero-1":
                model.synchronize()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        simulate(rank, p)
    assert [each.message.args[0][:10] for each in found] == ["batch norm"] * p * warns
    assert all(each.filename == __file__ for each in found)


ROOTS = {
    "a tensor": lambda loss: loss,
    "a list": lambda loss: [loss],
    "an edge": get_gradient_edge,
    "a list of edges": lambda loss: [get_gradient_edge(loss)],
}


@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize("mode", [contextlib.nullcontext, MemoryMeter], ids=["alone", "metered"])
def test_backward_takes_every_root_in_every_mode(root, mode):
    """A mode for dispatch calls operators by the names of their overloads, such as `detach.default`."""

    def rank(comm):
        model = DistributedDataParallel(nn.Linear(3, 1), comm)
        with mode():
            torch.autograd.backward(root(model(torch.full((2, 3), comm.rank + 1.0)).mean()), torch.ones(()))
            model.synchronize()
        return model.module.weight.grad.tolist()

    assert simulate(rank, 2).results == [[[1.5] * 3]] * 2
