"""Several backgrounds on one communicator: each has messages of its own, in whatever order they are used."""

import copy
import os
import sys
import time

import pytest
import torch
from torch import nn

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import Group, RankError, TracingComm, simulate
from hpcdl.comm.channels import Channels
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel

MAKES = {
    "DDP and DDP": (DistributedDataParallel, DistributedDataParallel),
    "DDP and FSDP": (DistributedDataParallel, FullyShardedDataParallel),
    "FSDP and FSDP": (FullyShardedDataParallel, FullyShardedDataParallel),
}
PLACES = {"plain": lambda comm: comm, "traced": TracingComm, "group": lambda comm: Group(comm, range(comm.size))}


def sums(comm, n=3):
    """Sums in `n` backgrounds, which each rank starts in an order of its own."""
    lanes = [comm.background() for _ in range(n)]
    values = [torch.full((4,), float(comm.rank + 10 * i)) for i in range(n)]
    order = list(range(n))[:: 1 if comm.rank % 2 else -1]
    for i in order:
        lanes[i].start(lambda comm, x=values[i]: ring_all_reduce(x, comm))
    for i in order[::-1]:
        lanes[i].wait()
        lanes[i].close()
    return [x[0].item() for x in values]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_backgrounds_started_in_any_order(p, place):
    expected = [float(sum(range(p)) + 10 * i * p) for i in range(3)]
    assert simulate(lambda comm: sums(PLACES[place](comm)), p).results == [expected] * p


def test_groups_agree_on_a_channel():
    """Ranks 0 and 1 have made two backgrounds more than rank 2 when all three make one."""

    def rank(comm):
        if comm.rank < 2:
            pair = Group(comm, [0, 1])
            pair.background(), pair.background()
        return sums(Group(comm, [0, 1, 2])) + sums(comm)

    assert simulate(rank, 3).results == [[3.0, 33.0, 63.0] * 2] * 3


def test_channels_of_all_and_of_groups_differ():
    comm = type("Alone", (), {"rank": 0, "size": 1, "devices": ("cpu",)})()
    channels = Channels()
    assert [channels.next(), channels.next_of(comm), channels.next(), channels.next_of(comm)] == [0, 1, 2, 3]


def test_a_large_tag_in_the_background_is_refused():
    def rank(comm):
        lane = comm.background()
        lane.start(lambda comm: comm.isend(torch.zeros(1), 0, tag=1 << 14))
        lane.wait()

    with pytest.raises(RankError, match="tag is 16384; in the background a tag is below 16384"):
        simulate(rank, 1)


def test_a_wrapper_on_one_rank_only_is_named():
    def rank(comm):
        if comm.rank:
            comm.background()
        DistributedDataParallel(nn.Linear(2, 2), comm)

    with pytest.raises(RankError, match="rank 1 has another model than rank 0"):
        simulate(rank, 2)


def two_models(comm, makes, pause=0.0, steps=4):
    """How many gradients of two models in one backward pass differ from those of one process."""
    torch.manual_seed(0)
    whole = [nn.Linear(6, 6), nn.Linear(6, 6)]
    first, second = (make(copy.deepcopy(module), comm) for make, module in zip(makes, whole, strict=True))
    x, wrong = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), 0
    for step in range(steps):
        for model in (first, second, *whole):
            model.zero_grad()
        second(first(x[comm.rank :: comm.size])).square().mean().backward()
        time.sleep(pause * comm.rank)
        for model in (first, second)[:: 1 if step % 2 else -1]:
            model.synchronize()
        whole[1](whole[0](x)).square().mean().backward()
        for model, reference in zip((first, second), whole, strict=True):
            shards = model.parameters() if isinstance(model, FullyShardedDataParallel) else None
            for own, expected in zip(shards or model.parameters(), reference.parameters(), strict=True):
                wrong += not close(own.grad, expected.grad, model)
    return wrong


def after_failures(comm, times=1):
    """How many gradients differ in a model that is wrapped after another one's backward pass has failed.

    The pass fails on every rank while gradients of its last layer are under way. A program may catch that, and use the
    communicator again.
    """

    def fail(gradient):
        raise RuntimeError("no gradient")

    wrong = 0
    for makes in times * list(MAKES.values()):
        layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        layers[0].register_forward_hook(lambda layer, x, y: y.register_hook(fail) and None)
        model = makes[1](layers, comm, **({"bucket_mb": 1e-4} if makes[1] is DistributedDataParallel else {}))
        with pytest.raises(RuntimeError, match="no gradient"):
            model(torch.ones(1 + comm.rank, 6)).mean().backward()
        wrong += two_models(comm, makes, 0.003, 2)
    return wrong


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_failed_backward_pass_leaves_no_message_to_the_next(p):
    assert simulate(after_failures, p).results == [0] * p


def close(own, expected, model):
    if own is None or own.shape == expected.shape:
        return own is None or bool(torch.allclose(own, expected, atol=1e-6))
    pieces = expected.reshape(-1).unfold(0, len(own), 1) if len(own) else own[None]  # a share is somewhere inside
    return bool((pieces - own).abs().amax(1).min() < 1e-6) if len(own) else True


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("names", MAKES)
def test_two_models_in_one_backward_pass(names, p):
    assert simulate(two_models, p, MAKES[names]).results == [0] * p


@pytest.mark.labs  # starts MPI
@pytest.mark.mpi
def test_two_models_over_mpi(mpiexec):
    code, printed = mpiexec(2, __file__)
    assert (code, printed.count("right")) == (0, 2), printed


@pytest.mark.labs  # starts processes
def test_two_models_over_gloo(tmp_path):
    import torch.multiprocessing as mp

    mp.spawn(_gloo, (str(tmp_path / "store"),), nprocs=2)


def _gloo(rank, store):
    import torch.distributed as dist

    from hpcdl.comm import TorchComm

    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    check(TorchComm())
    dist.destroy_process_group()


def check(comm):
    torch.set_num_threads(1)
    expected = [float(sum(range(comm.size)) + 10 * i * comm.size) for i in range(3)]
    for _ in range(5):
        assert sums(comm) == expected
    for names, makes in MAKES.items():
        assert two_models(comm, makes, 0.003, 10) == 0, names
    assert after_failures(comm, 3) == 0


if __name__ == "__main__":
    from hpcdl.comm import MPIComm

    check(MPIComm(timeout=60))
    print("right", flush=True)
    sys.stdout.flush()
    os._exit(0)
