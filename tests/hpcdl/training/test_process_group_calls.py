"""Every call of torch.distributed on ranks of ours gives what it gives on gloo, or is refused in a sentence."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from hpcdl.comm import RankError, simulate
from hpcdl.training.process_group import _a_world_for_each_thread, process_group

P = 3


def numbers(*shape, rank=None):
    """Whole numbers, whose sums are exact; each rank has its own."""
    generator = torch.Generator().manual_seed(dist.get_rank() if rank is None else rank)
    return torch.randint(-9, 9, shape, generator=generator).double()


def empty(*shapes):
    return [torch.zeros(shape, dtype=torch.float64) for shape in shapes]


def reduced(dst):
    x = numbers(2, 3)
    dist.reduce(x, dst)
    return x if dist.get_rank() == dst else None


def gathered(dst, rows=2):
    parts = empty(*[(rows, 3)] * P) if dist.get_rank() == dst else None
    dist.gather(numbers(rows, 3), parts, dst)
    return parts


def scattered():
    (out,) = empty((2, 3))
    dist.scatter(out, list(numbers(P, 2, 3)) if dist.get_rank() == 1 else None, 1)
    return out


def objects():
    found = [None] * P
    dist.gather_object({"rank": dist.get_rank()}, found if dist.get_rank() == 0 else None)
    return found


def ring(blocking):
    """Each rank sends to the next, by two tags in another order than they are received."""
    rank, (one, two) = dist.get_rank(), empty(3, (2, 2))
    x, before, after = numbers(3), (rank - 1) % P, (rank + 1) % P
    sent = [dist.isend(x, after, tag=5), dist.isend(numbers(2, 2), after, tag=7)]
    if blocking:
        dist.recv(two, before, tag=7)
        dist.recv(one, before, tag=5)
    else:
        for work in (dist.irecv(two, before, tag=7), dist.irecv(one, before, tag=5)):
            work.wait()
    for work in sent:
        work.wait()
    return one, two


def around_a_collective():
    """A message that is under way while all ranks sum is not taken for a part of the sum."""
    rank, (out,) = dist.get_rank(), empty(3)
    sent = dist.isend(numbers(3), 1) if rank == 0 else None
    total = numbers(3)
    dist.all_reduce(total)
    if sent:
        sent.wait()
    if rank == 1:
        dist.recv(out, 0)
    return total, out


def exchanged(shapes):
    rank = dist.get_rank()
    outs = empty(*[shapes(source, rank) for source in range(P)])
    dist.all_to_all(outs, [numbers(*shapes(rank, dest)) for dest in range(P)])
    return outs


def rows_exchanged(uneven):
    rank = dist.get_rank()
    if not uneven:
        (out,) = empty((P * 2, 2))
        dist.all_to_all_single(out, numbers(P * 2, 2))
        return out
    rows, out_rows = [rank + dest for dest in range(P)], [source + rank for source in range(P)]
    (out,) = empty((sum(out_rows), 2))
    dist.all_to_all_single(out, numbers(sum(rows), 2), out_rows, rows)
    return out


def transposed():
    """Into and out of tensors that are not contiguous."""
    outs = [x.T for x in empty(*[(3, 2)] * P)]
    dist.all_to_all(outs, [numbers(3, 2).T + i for i in range(P)])
    return outs


def batched():
    rank, (out,) = dist.get_rank(), empty(3)
    operations = [dist.P2POp(dist.isend, numbers(3), (rank + 1) % P), dist.P2POp(dist.irecv, out, (rank - 1) % P)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return out


def in_a_group():
    """The first and the last rank alone."""
    group, (out,) = dist.new_group([0, P - 1]), empty(3)
    total = numbers(3)
    if dist.get_rank() == 0:
        dist.send(numbers(3), P - 1, group=group)
    elif dist.get_rank() == P - 1:
        dist.recv(out, 0, group=group)
    if dist.get_rank() in (0, P - 1):
        dist.reduce(total, 0, group=group)
    return total if dist.get_rank() == 0 else out


CALLS = {
    "in a group": in_a_group,
    "reduce": lambda: reduced(0),
    "reduce to the last": lambda: reduced(P - 1),
    "gather": lambda: gathered(0),
    "gather to the last": lambda: gathered(P - 1),
    "gather nothing": lambda: gathered(1, rows=0),
    "scatter": scattered,
    "objects": objects,
    "send and recv": lambda: ring(True),
    "send and irecv": lambda: ring(False),
    "send around a collective": around_a_collective,
    "all_to_all": lambda: exchanged(lambda source, dest: (2, 3)),
    "all_to_all, transposed": transposed,
    "all_to_all_single": lambda: rows_exchanged(False),
    "all_to_all_single, uneven": lambda: rows_exchanged(True),
    "batch_isend_irecv": batched,
}


def on_gloo(call):
    store = dist.HashStore()

    def rank(r):
        with _a_world_for_each_thread():
            dist.init_process_group("gloo", rank=r, world_size=P, store=store)
            try:
                return call()
            finally:
                dist.destroy_process_group()

    with ThreadPoolExecutor(P) as threads:
        return list(threads.map(rank, range(P)))


def on_ours(call):
    def rank(comm):
        with process_group(comm):
            return call()

    return simulate(rank, P).results


@pytest.mark.parametrize("name", CALLS)
def test_as_on_gloo(name):
    found, expected = on_ours(CALLS[name]), on_gloo(CALLS[name])
    if name == "objects":
        assert found[0] == expected[0] == [{"rank": rank} for rank in range(P)]
    else:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_all_to_all_of_other_shapes():
    """gloo takes only tensors of one shape."""

    def shape(source, dest):
        return source + 2 * dest, 2

    for dest, outs in enumerate(on_ours(lambda: exchanged(shape))):
        expected = [numbers(*shape(source, dest), rank=source) for source in range(P)]
        torch.testing.assert_close(outs, expected, rtol=0, atol=0)


def test_reduce_scatter_of_lists():
    def call():
        (out,) = empty((2, 3))
        dist.reduce_scatter(out, list(numbers(P, 2, 3)))
        return out, numbers(P, 2, 3)

    found = on_ours(call)
    whole = sum(x for _, x in found)
    for rank, (out, _) in enumerate(found):
        torch.testing.assert_close(out, whole[rank], rtol=0, atol=0)


REFUSED = {
    "every tensor needs out's shape": lambda: dist.reduce_scatter(torch.zeros(2), [torch.zeros(3)] * P),
    "recv without a source": lambda: dist.recv(torch.zeros(2)),
    "tag is 99999; it is from 0 to": lambda: dist.isend(torch.zeros(2), (dist.get_rank() + 1) % P, tag=99999),
    "sums and means alone": lambda: dist.reduce(torch.zeros(2), 0, op=dist.ReduceOp.MAX),
}


@pytest.mark.parametrize("said", REFUSED)
def test_refused(said):
    with pytest.raises(RankError, match=said):
        on_ours(REFUSED[said])
