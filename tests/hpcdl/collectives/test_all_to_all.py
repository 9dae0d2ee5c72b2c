"""all_to_all, equal and unequal: NumPy and torch.distributed as oracles, the formula's seconds, what is refused."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from hpcdl.collectives import all_to_all
from hpcdl.comm import CommError, Group, TracingComm, simulate
from hpcdl.cost import collectives as cost

ALPHA, BETA = 2.0**-10, 2.0**-20  # sums of these are exact: times are equal to the bit


def rows(rank, n, shape=(), dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 * rank + n)
    return torch.randint(0, 100, (n, *shape), generator=generator).to(dtype)


def expected(tensors, counts, rank):
    """By hand: of each rank's rows those that are for `rank`, in the order of ranks."""
    starts = [np.concatenate([[0], np.cumsum(row)]) for row in counts]
    return np.concatenate([x.numpy()[s[rank] : s[rank + 1]] for x, s in zip(tensors, starts, strict=True)])


def random_counts(p, seed, most=5):
    return torch.randint(0, most, (p, p), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 2)])
def test_equal_shares_are_those_of_tensor_split(p, shape):
    for n in {0, 1, p - 1, p, 2 * p + 1, 40}:
        tensors = [rows(rank, n, shape) for rank in range(p)]
        counts = [[len(part) for part in x.tensor_split(p)] for x in tensors]
        simulation = simulate(lambda comm, t=tensors: all_to_all(t[comm.rank], comm), p, alpha=ALPHA, beta=BETA)
        for rank, result in enumerate(simulation.results):
            np.testing.assert_array_equal(result.numpy(), expected(tensors, counts, rank))
        itemsize = 4 * int(np.prod(shape, initial=1))
        assert simulation.seconds == cost.all_to_all(p, n * itemsize, ALPHA, BETA, itemsize=itemsize)
        assert sum(simulation.bytes_sent) == (p - 1) * n * itemsize


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 9])
def test_unequal_shares_with_and_without_out_counts(p, dtype):
    counts = random_counts(p, seed=p)
    tensors = [rows(rank, sum(counts[rank]), (2,), dtype) for rank in range(p)]

    def rank(comm, known):
        out_counts = [counts[source][comm.rank] for source in range(p)] if known else None
        return all_to_all(tensors[comm.rank], comm, counts[comm.rank], out_counts)

    itemsize = 2 * dtype.itemsize
    for known in (True, False):
        simulation = simulate(rank, p, known, alpha=ALPHA, beta=BETA)
        for r, result in enumerate(simulation.results):
            theirs = torch.cat([x.split(row)[r] for x, row in zip(tensors, counts, strict=True)])
            assert torch.equal(result, theirs)
        assert simulation.seconds == cost.unequal_all_to_all(counts, ALPHA, BETA, itemsize=itemsize, known=known)


@pytest.mark.parametrize("p", [2, 4, 7])
def test_each_rank_sends_one_message_to_every_other(p):
    simulation = simulate(lambda comm: all_to_all(torch.ones(4 * p), comm), p)
    sends = [(event.rank, event.peer, event.nbytes) for event in simulation.trace if event.op == "send"]
    assert sorted(sends) == [(r, s, 16) for r in range(p) for s in range(p) if r != s]


def test_unequal_all_to_all_costs():
    even = [[2] * 4] * 4
    assert cost.unequal_all_to_all(even, ALPHA, BETA) == cost.all_to_all(4, 32, ALPHA, BETA)
    hot = [[8, 0, 0, 0]] * 4  # all rows to rank 0, as to one expert
    assert cost.unequal_all_to_all(hot, ALPHA, BETA) == cost.all_to_all(4, 128, ALPHA, BETA)


def test_heads_for_sequence_and_back_again():
    """Ulysses: each rank has some of the sequence and all heads, then all of the sequence and some heads."""
    p, sequence, heads, width = 4, 8, 4, 3
    whole = torch.arange(sequence * heads * width, dtype=torch.float32).view(sequence, heads, width)

    def rank(comm):
        mine = whole.tensor_split(p)[comm.rank]
        by_heads = mine.view(sequence // p, p, heads // p, width).transpose(0, 1).contiguous()
        gathered = all_to_all(by_heads, comm).view(sequence, heads // p, width)
        assert torch.equal(gathered, whole[:, comm.rank : comm.rank + 1])
        back = all_to_all(gathered, comm).view(p, sequence // p, heads // p, width)
        return torch.equal(back.transpose(0, 1).reshape_as(mine), mine)

    assert all(simulate(rank, p).results)


@pytest.mark.parametrize("wrap", [TracingComm, lambda comm: Group(comm, range(comm.size))])
def test_out_is_filled_and_returned(wrap):
    def rank(comm):
        out = torch.zeros(4)
        assert all_to_all(torch.arange(4.0) + 10 * comm.rank, wrap(comm), out=out) is out
        return out.tolist()

    assert simulate(rank, 2).results == [[0, 1, 10, 11], [2, 3, 12, 13]]


def test_a_parameter_is_sent_without_its_history():
    def rank(comm):
        return all_to_all(torch.nn.Parameter(torch.full((2,), float(comm.rank))), comm)

    for result in simulate(rank, 2).results:
        assert result.tolist() == [0.0, 1.0]
        assert not result.requires_grad


X = torch.ones(4)
BAD = {
    "a list": (([1.0],), TypeError, "x is a list"),
    "a strided x": ((torch.ones(2, 3).T,), ValueError, r"x of shape \(3, 2\) is not contiguous"),
    "no rows": ((torch.tensor(1.0),), ValueError, r"x has no rows"),
    "too few counts": ((X, [4]), ValueError, r"counts is \[4\]; it has one number of rows, 0 or more, for each of 2"),
    "a negative count": ((X, [5, -1]), ValueError, r"counts is \[5, -1\]; it has one number"),
    "a fraction": ((X, [1.5, 2.5]), TypeError, "float"),
    "too many rows": ((X, [4, 4]), ValueError, r"counts is \[4, 4\], 8 rows, and x has 4; every row goes to one rank"),
    "out_counts": ((X, [2, 2], [2]), ValueError, r"out_counts is \[2\]; it has one"),
    "what it keeps": (
        (X, [2, 2], [1, 1]),
        ValueError,
        r"counts\[\d\] is 2 and out_counts\[\d\] is 1; what a rank keeps",
    ),
    "a short out": ((X, None, None, torch.ones(3)), ValueError, r"out is \(3,\) torch.float32; what comes is \(4,\)"),
    "another dtype": ((X, None, None, torch.ones(4).double()), ValueError, "out is .*float64; what comes is .*float32"),
    "a strided out": ((X, None, None, torch.ones(4, 2)[:, 0]), ValueError, "out of shape .* is not contiguous"),
    "x itself": ((X, None, None, X), ValueError, "x and out share memory"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_is_refused_on_every_rank_before_the_first_message(bad):
    (x, *others), kind, said = BAD[bad]

    def rank(comm):
        with pytest.raises(kind, match=said):
            all_to_all(x, comm, *others)

    assert not simulate(rank, 2).trace


def test_counts_of_two_ranks_that_do_not_fit_name_both():
    counts, out_counts = [[1, 3], [2, 2]], [[1, 2], [2, 2]]  # rank 1 expects 2 of rank 0's 3

    def rank(comm):
        all_to_all(X, comm, counts[comm.rank], out_counts[comm.rank])

    with pytest.raises(CommError, match=r"rank 0 sends 3 float32 to rank 1, .* out of 2 float32; both sides need"):
        simulate(rank, 2)
    with pytest.raises(CommError, match=r"rank 0 sends 2 float32 to rank 1, .* out of 3 float32"):
        simulate(lambda comm: all_to_all(torch.ones(4 + 2 * comm.rank), comm), 2)


def test_wrong_arguments_of_the_formulas_are_named():
    with pytest.raises(ValueError, match=r"counts has rows of \[2, 1\]; 2 ranks have 2 rows of 2 counts"):
        cost.unequal_all_to_all([[1, 1], [1]], ALPHA, BETA)


# Real machines: MPI's Alltoallv and gloo's all_to_all_single on the same rows.

MPI = r"""
import sys
import torch
from mpi4py import MPI
from hpcdl.collectives import all_to_all
from hpcdl.comm import CommError, MPIComm

torch.set_num_threads(1)
mpi = MPI.COMM_WORLD
comm, p, rank = MPIComm(mpi, timeout=60), mpi.size, mpi.rank
for most in (2, 5, 40_000):  # the last: through shared memory
    counts = random_counts(p, seed=most, most=most)
    mine, theirs = counts[rank], [row[rank] for row in counts]
    for lent in (False, True):
        x = (comm.empty if lent else torch.empty)(2 * sum(mine)).view(-1, 2).copy_(rows(rank, sum(mine), (2,)))
        oracle = torch.empty(sum(theirs), 2)
        mpi.Alltoallv([x.numpy(), [2 * n for n in mine]], [oracle.numpy(), [2 * n for n in theirs]])
        assert torch.equal(all_to_all(x, comm, mine), oracle)
        assert torch.equal(all_to_all(x, comm, mine, theirs, torch.zeros_like(oracle)), oracle)
x, oracle = rows(rank, 3 * p), torch.empty(3 * p)
mpi.Alltoall(x.numpy(), oracle.numpy())
assert torch.equal(all_to_all(x, comm), oracle)
if p == 2:
    try:
        all_to_all(torch.ones(4 + 2 * rank), comm)
    except CommError as error:
        assert f"rank {rank}: sendrecv(source={1 - rank}): out has" in str(error), error
    else:
        raise AssertionError("nothing was raised")
sys.stdout.write(f"rank {rank} is right\n")
"""


@pytest.mark.mpi
@pytest.mark.parametrize("p", [*(pytest.param(p, marks=pytest.mark.labs) for p in (1, 2)), 3])
def test_over_mpi_it_is_alltoallv(mpiexec, p):
    _, printed = mpiexec(p, "-c", f"import runpy; globals().update(runpy.run_path({__file__!r}))\n{MPI}")
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(p)], printed


def over_gloo(rank, p, folder):
    """In a process: beside torch's own."""
    import torch.distributed as dist

    from hpcdl.comm import TorchComm

    store = dist.FileStore(str(Path(folder, "store")), p)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=p)
    helpers = runpy.run_path(__file__)
    for most in (2, 5, 1000):
        counts = helpers["random_counts"](p, seed=most, most=most)
        mine, theirs = counts[rank], [row[rank] for row in counts]
        x, oracle = helpers["rows"](rank, sum(mine), (2,)), torch.empty(sum(theirs), 2)
        dist.all_to_all_single(oracle, x, theirs, mine)
        assert torch.equal(all_to_all(x, TorchComm(), mine), oracle)
        assert torch.equal(all_to_all(x, TorchComm(), mine, theirs), oracle)
    x, oracle = helpers["rows"](rank, 4 * p), torch.empty(4 * p)
    dist.all_to_all_single(oracle, x)
    assert torch.equal(all_to_all(x, TorchComm()), oracle)
    dist.destroy_process_group()


@pytest.mark.parametrize("p", [pytest.param(2, marks=pytest.mark.labs), 3])
def test_over_gloo_it_is_all_to_all_single(p, tmp_path):
    torch.multiprocessing.spawn(over_gloo, (p, str(tmp_path)), nprocs=p)
