"""torch's groups of some ranks on ranks of ours: each collective stays within its group, as one process computes it."""

from itertools import combinations
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from hpcdl.comm import DeadlockError, simulate
from hpcdl.training.process_group import process_group

P = 4
SOME = [list(ranks) for n in range(1, P + 1) for ranks in combinations(range(P), n)]


def on_ranks(f, p: int = P):
    def rank(comm):
        with process_group(comm):
            return f(comm)

    return simulate(rank, p)


def found(group, comm, size: int) -> dict:
    """Return what each collective of `group` gives to this rank, which counts from 1 in it."""
    total, mean, root = (torch.tensor([comm.rank + 1.0], dtype=torch.float64) for _ in range(3))
    parts, share, piece = [torch.zeros(1) for _ in range(size)], torch.zeros(1), torch.zeros(1)
    dist.all_reduce(total, group=group)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=group)
    dist.broadcast(root, group_src=size - 1, group=group)
    dist.all_gather(parts, torch.tensor([float(comm.rank)]), group=group)
    dist.reduce_scatter_single(share, torch.arange(float(size)), group=group)
    own = dist.get_rank(group)
    dist.scatter(
        piece, list(10 * torch.arange(float(size)).view(size, 1)) if own == 0 else None, group_src=0, group=group
    )
    dist.barrier(group)
    values = {"total": total, "mean": mean, "root": root, "parts": torch.cat(parts), "share": share, "piece": piece}
    return {"rank": own, "size": dist.get_world_size(group), **{name: x.tolist() for name, x in values.items()}}


def expected(ranks: list[int], rank: int) -> dict:
    own, size, total = ranks.index(rank), len(ranks), float(sum(ranks) + len(ranks))
    return {
        **{"rank": own, "size": size, "total": [total], "mean": [total / size], "root": [ranks[-1] + 1.0]},
        **{"parts": list(map(float, ranks)), "share": [float(size * own)], "piece": [10.0 * own]},
    }


def test_all_groups_of_some_ranks():
    def f(comm):
        groups = [dist.new_group(ranks) for ranks in SOME]
        return {i: found(groups[i], comm, len(ranks)) for i, ranks in enumerate(SOME) if comm.rank in ranks}

    for rank, results in enumerate(on_ranks(f).results):
        assert results == {i: expected(ranks, rank) for i, ranks in enumerate(SOME) if rank in ranks}


def test_subgroups_of_equal_size():
    pairs = [[0, 1], [0, 1], [2, 3], [2, 3]]
    results = on_ranks(lambda comm: found(dist.new_subgroups(2)[0], comm, 2)).results
    assert results == [expected(ranks, rank) for rank, ranks in enumerate(pairs)]


def test_the_whole_world_after_a_group_has_ended():
    def f(comm):
        mine, _ = dist.new_subgroups(2)
        dist.destroy_process_group(mine)
        return found(None, comm, P)

    assert on_ranks(f).results == [expected(list(range(P)), rank) for rank in range(P)]


def test_groups_in_another_order_on_one_rank():
    """Two groups of the same ranks never take each other's messages."""

    def f(comm):
        groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
        for group in groups if comm.rank else reversed(groups):
            dist.all_reduce(torch.ones(3), group=group)

    with pytest.raises(DeadlockError):
        on_ranks(f, 2)


def test_a_mesh_of_two_axes():
    def f(comm):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return {name: found(mesh.get_group(name), comm, 2) for name in ("dp", "tp")}

    for rank, results in enumerate(on_ranks(f).results):
        assert results["tp"] == expected([[0, 1], [2, 3]][rank // 2], rank)
        assert results["dp"] == expected([[0, 2], [1, 3]][rank % 2], rank)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def batch() -> torch.Tensor:
    return torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradients(model: Any, x: torch.Tensor) -> list[torch.Tensor]:
    model(x).pow(2).mean().backward()
    return [getattr(p.grad, "full_tensor", lambda p=p: p.grad)().detach().clone() for p in model.parameters()]


def assert_close(results, right: list[torch.Tensor]) -> None:
    for result in results:
        for x, y in zip(result, right, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(2, 2), (1, 4), (4, 1)])
def test_replicas_of_shards(shape):
    """FSDP2 on a mesh of two axes computes the gradients of one process."""

    def f(comm):
        model = fully_shard(network(), mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")))
        return gradients(model, batch()[2 * comm.rank : 2 * comm.rank + 2])

    assert_close(on_ranks(f).results, gradients(network(), batch()))


def test_replicas_in_each_group():
    def f(comm):
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        model = DistributedDataParallel(network(), process_group=groups[comm.rank // 2])
        return gradients(model, batch()[2 * comm.rank : 2 * comm.rank + 2])

    results = on_ranks(f).results
    assert_close(results[:2], gradients(network(), batch()[:4]))
    assert_close(results[2:], gradients(network(), batch()[4:]))


@pytest.mark.parametrize("placements", [[Shard(0), Shard(1)], [Replicate(), Shard(0)], [Shard(1), Replicate()]])
def test_tensors_on_a_mesh_of_two_axes(placements):
    w = torch.arange(16.0).view(4, 4)

    def f(comm):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x: Any = distribute_tensor(w, mesh, placements)
        return x.full_tensor().tolist(), (x @ x).full_tensor().tolist(), x.to_local().tolist()

    for rank, (whole, product, local) in enumerate(on_ranks(f).results):
        assert whole == w.tolist()
        assert product == (w @ w).tolist()
        right = w
        for axis, placement in enumerate(placements):
            if isinstance(placement, Shard):
                right = right.chunk(2, placement.dim)[(rank // 2, rank % 2)[axis]]
        assert local == right.tolist()
