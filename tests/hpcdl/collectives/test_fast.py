"""The fast forms: the bits, bytes and neighbours of the plain ones, whatever the machine offers."""

import inspect

import pytest
import torch

from hpcdl.collectives import ALL_REDUCE, FAST, all_gather, fast_all_gather, fast_reduce_scatter, reduce_scatter
from hpcdl.comm import Group, TracingComm, simulate

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]
EVERY = pytest.mark.parametrize("name", FAST)


def inputs(p, n, dtype):
    """Numbers of very different size, so that an order of summation shows in the bits."""
    generator = torch.Generator().manual_seed(1000 * p + n)
    x = torch.randn(p, n, generator=generator, dtype=torch.float64) * 10.0 ** torch.arange(p).remainder(4)[:, None]
    return x.to(dtype)


def run(f, x, weights, segment=None, lending=None, wrap=lambda comm: comm):
    """`f` on one row of `x` per rank, on a machine with that best length of messages, on which some ranks lend.

    Each rank's result is what `f` returns, the row itself where that is nothing.
    """

    def rank(comm):
        comm.segment = segment
        comm.lends = lambda x: None if lending is None else comm.rank in lending
        mine = x[comm.rank].clone()
        found = f(mine, wrap(comm), weights[comm.rank])
        return mine if found is None else found

    return simulate(rank, len(x))


def bits(x):
    return x.view(torch.uint8)


def test_every_fast_form_has_a_plain_one_with_the_same_arguments():
    assert set(FAST) <= set(ALL_REDUCE)
    for f in (*ALL_REDUCE.values(), *FAST.values()):
        x, comm, weight, *options = inspect.signature(f).parameters.values()
        assert [x.name, comm.name, weight.name, weight.default] == ["x", "comm", "weight", 1.0]
        assert all(option.kind is option.KEYWORD_ONLY for option in options)


@pytest.mark.thinned(4)
@EVERY
@pytest.mark.parametrize("p", range(1, 10))
def test_a_fast_form_gives_the_plain_ones_bits(name, p):
    for n in sorted({0, 1, p - 1, p, p + 1, 37, 1003}):
        for dtype in DTYPES:
            x, share = inputs(p, n, dtype), [(rank + 1) / p for rank in range(p)]
            for weights in [[1.0] * p] + [share] * (dtype != torch.int64):
                plain = run(ALL_REDUCE[name], x, weights).results
                for segment in (None, 64):
                    fast = run(FAST[name], x, weights, segment).results
                    assert all(map(torch.equal, map(bits, plain), map(bits, fast))), (n, dtype, weights, segment)


@EVERY
@pytest.mark.parametrize("wrap", [TracingComm, lambda comm: Group(comm, range(comm.size))])
def test_a_fast_form_may_be_traced_and_run_in_a_group(name, wrap):
    for p in (2, 5):
        x, weights = inputs(p, 37, torch.float32), [0.3] * p
        plain = run(ALL_REDUCE[name], x, weights).results
        assert all(map(torch.equal, plain, run(FAST[name], x, weights, wrap=wrap).results))


@pytest.mark.parametrize("lending", [[], [0], range(3)])
def test_ranks_cut_alike_whichever_lends(lending):
    x, weights = inputs(3, 1003, torch.float32), [0.3] * 3
    plain, fast = run(ALL_REDUCE["ring"], x, weights), run(FAST["ring"], x, weights, segment=64, lending=lending)
    assert all(map(torch.equal, plain.results, fast.results))
    longest = max(event.nbytes for event in fast.trace if event.op == "send")
    assert longest == (4 * 335 if len(lending) == 3 else 64), "all lend: whole chunks; else at most a segment"


def sent(run):
    return sorted((event.rank, event.peer, event.nbytes) for event in run.trace if event.op == "send")


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [0, 1, 4, 37, 1003])
def test_fast_reduce_scatter_equals_the_plain_one(p, n):
    x, weights = inputs(p, n, torch.float32), [(rank + 1) / p for rank in range(p)]
    plain, fast = run(reduce_scatter, x, weights), run(fast_reduce_scatter, x, weights)
    assert sent(plain) == sent(fast)
    for other in (fast, run(fast_reduce_scatter, x, weights, segment=64)):
        assert all(map(torch.equal, plain.results, other.results))


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fast_all_gather_takes_a_chunk_from_elsewhere(p, dtype):
    x = inputs(p, 37, torch.float32)
    own = [row.tensor_split(p)[rank] for rank, row in enumerate(x)]

    def fast(empty, comm, weight):
        fast_all_gather(empty.fill_(torch.nan), comm, own[comm.rank])

    plain = run(lambda x, comm, weight: all_gather(x, comm), x.to(dtype), [1.0] * p)
    found = run(fast, x.to(dtype), [1.0] * p)
    assert all(map(torch.equal, plain.results, found.results))
    assert sent(plain) == sent(found)


@pytest.mark.parametrize("p", range(1, 10))
def test_the_fast_ring_sends_the_same_messages_as_the_plain_one(p):
    x, weights = inputs(p, 37, torch.float32), [1.0] * p
    plain, fast = (run(forms["ring"], x, weights) for forms in (ALL_REDUCE, FAST))
    assert sent(plain) == sent(fast)


@pytest.mark.parametrize("p", range(2, 10))
def test_plain_ring_sends_2_p_minus_1_chunks(p):
    n = 8 * p + 3
    trace = run(ALL_REDUCE["ring"], inputs(p, n, torch.float32), [1.0] * p).trace
    sends = [event for event in trace if event.op == "send"]
    for rank in range(p):
        mine = [event for event in sends if event.rank == rank]
        assert {event.peer for event in mine} == {(rank + 1) % p}
        assert len(mine) == 2 * (p - 1)
        assert {event.nbytes // 4 for event in mine} <= {n // p, n // p + 1}
