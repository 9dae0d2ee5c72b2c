"""torch.distributed on ranks of ours: its collectives give what they should, its tools train as one process does."""

import pytest
import torch
import torch.distributed as dist

from hpcdl.comm import RankError, simulate
from hpcdl.training import six_tools
from hpcdl.training.process_group import process_group


def on_ranks(f, p: int = 3):
    def rank(comm):
        with process_group(comm) as group:
            return f(comm, group)

    return simulate(rank, p)


def test_a_sum_and_a_mean():
    def f(comm, group):
        x, y = torch.full((2, 3), comm.rank + 1.0), torch.full((4,), comm.rank + 1.0)
        dist.all_reduce(x)
        dist.all_reduce(y, op=dist.ReduceOp.AVG)
        return x, y

    for x, y in on_ranks(f).results:
        assert (x == 6).all()
        assert (y == 2).all()


def test_what_is_no_sum_is_refused():
    with pytest.raises(RankError, match="sums and means alone"):
        on_ranks(lambda comm, group: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX))


def test_gather_scatter_broadcast():
    def f(comm, group):
        mine, parts = torch.tensor([float(comm.rank)]), [torch.zeros(1) for _ in range(comm.size)]
        dist.all_gather(parts, mine)
        share, whole = torch.zeros(2), torch.arange(2.0 * comm.size)
        dist.reduce_scatter_single(share, whole)
        piece = torch.zeros(2)
        dist.scatter(piece, list(whole.view(comm.size, 2)) if comm.rank == 1 else None, src=1)
        dist.broadcast(mine, src=2)
        return torch.cat(parts), share, piece, mine

    for rank, (parts, share, piece, mine) in enumerate(on_ranks(f).results):
        assert parts.tolist() == [0, 1, 2]
        assert share.tolist() == [6.0 * rank, 3 * (2.0 * rank + 1)]
        assert piece.tolist() == [2.0 * rank, 2.0 * rank + 1]
        assert mine.item() == 2


def test_messages_are_traced_and_calls_noted():
    run = on_ranks(lambda comm, group: (dist.all_reduce(torch.ones(30)), group.calls)[1], 3)
    assert run.results[0] == [("all_reduce", 120)]
    assert run.bytes_sent[0] == 2 * 120 * 2 / 3


def test_a_group_ends_with_its_block_also_where_a_rank_fails():
    def f(comm, group):
        dist.barrier()
        if comm.rank == 1:
            raise ValueError("no")
        dist.barrier()

    with pytest.raises(RankError, match="no"):
        on_ranks(f)
    assert not dist.is_initialized()
    assert on_ranks(lambda comm, group: dist.get_rank()).results == [0, 1, 2]


@pytest.fixture(scope="module")
def right() -> list[float]:
    return six_tools.serial(six_tools.wide(32), 8)


@pytest.mark.parametrize("way", list(six_tools.WAYS))
def test_every_tool_trains_as_one_process(way, right):
    for losses in simulate(six_tools.train, 2, six_tools.WAYS[way], six_tools.wide(32), 8).results:
        assert losses == pytest.approx(right, rel=1e-12)
