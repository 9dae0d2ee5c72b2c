"""What every machine refuses, in the same words: rank, operation, name, value, rule."""

import pytest
import torch

from hpcdl.comm import Group, TracingComm, simulate

x = torch.zeros(4)
BAD = {
    "a rank out of range": (lambda c: c.send(x, 2), ValueError, "rank 0: send: dest is 2; ranks are 0 to 1"),
    "a negative rank": (lambda c: c.recv(x, -1), ValueError, "rank 0: recv: source is -1; ranks are 0 to 1"),
    "a rank that is no int": (lambda c: c.send(x, 1.0), TypeError, "rank 0: send: dest is 1.0; a rank is an int"),
    "a root out of range": (lambda c: c.broadcast(x, root=5), ValueError, "broadcast: root is 5; ranks are 0 to 1"),
    "a negative tag": (lambda c: c.isend(x, 1, tag=-3), ValueError, "isend: tag is -3; a tag is an int, 0 or more"),
    "a list": (lambda c: c.send([1.0], 1), TypeError, "send: x is a list; messages are torch tensors"),
    "a tensor elsewhere": (lambda c: c.irecv(x.to("meta"), 1), ValueError, "irecv: out is on meta; .* out.cpu()"),
    "a strided tensor": (lambda c: c.all_reduce(torch.zeros(3, 4).T), ValueError, r"shape \(4, 3\) is not contiguous"),
    "a sparse tensor": (lambda c: c.send(torch.eye(3).to_sparse(), 1), ValueError, "not contiguous"),
    "a conjugate view": (
        lambda c: c.send(torch.full((2,), 1 - 2j).conj(), 1),
        ValueError,
        r"send: x is the conjugate of what its memory holds; use x\.resolve_conj\(\)",
    ),
    "a negative view": (
        lambda c: c.broadcast(torch._neg_view(x)),
        ValueError,
        r"broadcast: x is the negative of what its memory holds; use x\.resolve_neg\(\)",
    ),
    "no request": (lambda c: c.wait_any([]), ValueError, "rank 0: wait_any: all 0 requests have been waited for"),
    "a tag that no int of C holds": (lambda c: c.send(x, 1, tag=2**40), ValueError, "send: tag is 1099511627776; .*"),
    **{
        f"a sum of {what}": (
            lambda c, given=given: c.sendrecv_add(given[0], 1, given[1], 1, given[2]),
            ValueError,
            said,
        )
        for what, given, said in (
            ("other sizes", (x, x[:2].clone(), x.clone()), r"out is \(2,\) of torch.float32 and scratch \(4,\)"),
            ("other dtypes", (x, x.clone(), x.double()), "of torch.float32 and scratch .* of torch.float64"),
            ("a list", (x, [0.0] * 4, x.clone()), "out is a list and scratch"),
            ("x in scratch", (x, x.clone(), x), "x and scratch share memory"),
            ("out in scratch", (x, *torch.zeros(2, 6)[0].as_strided((2, 4), (2, 1))), "out and scratch share memory"),
            ("x in out", (x, x, x.clone()), "x and out share memory"),
        )
    },
    "overlapping tensors": (lambda c: c.sendrecv(x, 1, x[2:], 1), ValueError, "sendrecv: x and out share memory"),
}


@pytest.mark.parametrize("wrap", [lambda comm: comm, TracingComm], ids=["simulated", "tracing"])
@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_refused_with_its_rule(name, wrap):
    call, kind, said = BAD[name]

    def rank(comm):
        if comm.rank == 0:
            with pytest.raises(kind, match=said):
                call(wrap(comm))

    simulate(rank, 2)


def test_neighbouring_chunks_and_empty_tensors_do_not_overlap():
    def rank(comm):
        chunks = torch.arange(6.0).split(3)
        comm.sendrecv(chunks[0], 0, chunks[1], 0)
        comm.sendrecv(chunks[0][:0], 0, chunks[0][1:1], 0)
        return chunks[1].tolist()

    assert simulate(rank, 1).results == [[0.0, 1.0, 2.0]]


@pytest.mark.parametrize("wrap", [lambda comm: comm, TracingComm, lambda comm: Group(comm, [2, 0, 1])])
def test_sums_go_back_to_where_their_parts_came_from(wrap):
    def rank(comm):
        comm = wrap(comm)
        mine, total = torch.tensor([10.0 * comm.rank]), torch.tensor([2.0])
        comm.sendrecv_add(
            mine, (comm.rank + 1) % 3, total, (comm.rank - 1) % 3, torch.empty(1), weight=0.5, tag=4, back=True
        )
        return total.item(), mine.item()

    results = simulate(rank, 3).results
    assert sorted(results) == [(1.0, 6.0), (6.0, 11.0), (11.0, 1.0)]


@pytest.mark.parametrize("wrap", [lambda comm: comm, TracingComm, lambda comm: Group(comm, [1, 0])])
def test_a_message_is_used_where_it_lies(wrap):
    def rank(comm):
        comm, seen = wrap(comm), []
        request = comm.isend(torch.full((2, 3), float(comm.rank)), 1 - comm.rank, tag=2)
        comm.recv_with(lambda x: seen.append((x.shape, x[0].item())), torch.empty(2, 3), 1 - comm.rank, tag=2)
        request.wait()
        with pytest.raises(ValueError, match="recv: source is 2"):
            comm.recv_with(seen.append, torch.empty(2), 2)
        return seen == [((6,), 1.0 - comm.rank)]

    assert simulate(rank, 2).results == [True, True]


@pytest.mark.parametrize("wrap", [lambda comm: comm, TracingComm, lambda comm: Group(comm, [1, 0])])
def test_a_machine_without_memory_to_share_has_ordinary_tensors(wrap):
    def rank(comm):
        tensor = wrap(comm).empty(5, torch.int16)
        assert wrap(comm).lends(tensor) is None
        return tensor.shape, tensor.dtype

    assert simulate(rank, 2).results == [((5,), torch.int16)] * 2
