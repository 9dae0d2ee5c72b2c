"""scatter and gather: any root, ranks and elements; the formula's seconds to the bit; what they are good for."""

import pytest
import torch

from hpcdl.collectives import all_gather, broadcast, gather, reduce_scatter, scatter
from hpcdl.comm import Group, TracingComm, simulate
from hpcdl.cost import collectives as cost

ALPHA, BETA = 2.0**-10, 2.0**-20  # sums of these are exact: times are equal to the bit
RANKS = [*range(1, 10), 16, 33]


def sizes(p):
    return sorted({0, 1, p - 1, p, 1000})


def rows(p, n, dtype=torch.float32):
    return torch.randint(0, 100, (p, n), generator=torch.Generator().manual_seed(p + n)).to(dtype)


@pytest.mark.parametrize("p", RANKS)
def test_scatter_gives_chunk_r_of_any_root_to_rank_r_in_the_formulas_time(p):
    for n in sizes(p):
        for root in {0, p // 2, p - 1}:
            x = rows(p, n)
            simulation = simulate(
                lambda comm, x=x, root=root: scatter(x[comm.rank].clone(), comm, root), p, alpha=ALPHA, beta=BETA
            )
            for mine, chunk in zip(simulation.results, x[root].tensor_split(p), strict=True):
                assert torch.equal(mine, chunk)
            assert simulation.seconds == cost.scatter(p, 4 * n, ALPHA, BETA, root=root)
            assert len([event for event in simulation.trace if event.op == "send"]) == p - 1


@pytest.mark.parametrize("p", RANKS)
def test_gather_takes_chunk_r_of_rank_r_to_any_root_in_the_formulas_time(p):
    for n in sizes(p):
        for root in {0, p // 2, p - 1}:
            x = rows(p, n)

            def rank(comm, x=x, root=root):
                mine = x[comm.rank].clone()
                gather(mine, comm, root)
                return mine

            simulation = simulate(rank, p, alpha=ALPHA, beta=BETA)
            whole = torch.cat([row.tensor_split(p)[r] for r, row in enumerate(x)])
            assert torch.equal(simulation.results[root], whole)
            assert simulation.seconds == cost.gather(p, 4 * n, ALPHA, BETA, root=root)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_for_powers_of_two_and_whole_chunks_it_is_the_textbooks_cost(p):
    n = 4 * p * 100
    for root in range(p):
        expected = (p.bit_length() - 1) * ALPHA + (p - 1) / p * n * BETA
        assert cost.scatter(p, n, ALPHA, BETA, root=root) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("wrap", [TracingComm, lambda comm: Group(comm, reversed(range(comm.size)))])
def test_there_and_back_in_any_dtype_shape_and_communicator(dtype, wrap):
    x = (torch.arange(3 * 5 * 2).view(3, 5, 2) % 7).to(dtype)

    def rank(comm):
        comm, mine = wrap(comm), x.clone() if comm.rank == 1 else torch.zeros_like(x)
        root = 1 if comm.size == 3 and not isinstance(comm, Group) else comm.size - 2
        chunk = scatter(mine, comm, root).clone()
        back = torch.zeros_like(x)
        back.view(-1).tensor_split(comm.size)[comm.rank].copy_(chunk)
        gather(back, comm, root)
        return comm.rank == root, back

    assert all(torch.equal(back, x) for is_root, back in simulate(rank, 3).results if is_root)


@pytest.mark.parametrize("p", [1, 3, 8])
def test_they_are_halves_of_a_broadcast_and_a_reduce_of_fewer_bytes(p):
    x = rows(p, 800)

    def rank(comm):
        spread, summed = x[comm.rank].clone(), x[comm.rank].clone()
        scatter(spread, comm, p - 1)
        all_gather(spread, comm)
        reduce_scatter(summed, comm)
        gather(summed, comm)
        return spread, summed

    results = simulate(rank, p).results
    assert all(torch.equal(spread, x[p - 1]) for spread, _ in results)
    assert torch.equal(results[0][1], x.sum(0))


def test_scatter_and_all_gather_beat_a_broadcast_of_long_messages():
    def seconds(f):
        return simulate(lambda comm: f(torch.zeros(8000), comm), 8, beta=BETA).seconds

    def halves(x, comm):
        scatter(x, comm)
        all_gather(x, comm)

    assert seconds(halves) / seconds(broadcast) == pytest.approx(2 * 7 / 8 / 3)


@pytest.mark.parametrize("f", [scatter, gather])
def test_bad_arguments_are_refused_before_any_message(f):
    def rank(comm):
        with pytest.raises(ValueError, match=f"rank {comm.rank}: {f.__name__}: root is 3; ranks are 0 to 2"):
            f(torch.ones(2), comm, 3)
        with pytest.raises(ValueError, match=rf"{f.__name__}: x of shape \(3, 2\) is not contiguous"):
            f(torch.ones(2, 3).T, comm)
        with pytest.raises(TypeError, match=f"{f.__name__}: x is a list"):
            f([1.0], comm)

    assert not simulate(rank, 3).trace


@pytest.mark.parametrize("formula", [cost.scatter, cost.gather])
def test_wrong_arguments_of_the_formulas_are_named(formula):
    with pytest.raises(ValueError, match="root is 4; ranks are 0 to 3"):
        formula(4, 16, ALPHA, BETA, root=4)
    with pytest.raises(ValueError, match="nbytes is 6"):
        formula(4, 6, ALPHA, BETA)


MPI = r"""
import sys
import torch
from mpi4py import MPI
from hpcdl.collectives import gather, scatter
from hpcdl.comm import MPIComm

torch.set_num_threads(1)
mpi = MPI.COMM_WORLD
comm, p, rank = MPIComm(mpi, timeout=60), mpi.size, mpi.rank
for n in (p, 20 * p, 100_000 * p):
    for root in range(p):
        x, oracle, whole = rows(p, n)[root], torch.empty(n // p), torch.empty(n)
        mpi.Scatter(x.numpy(), oracle.numpy(), root)
        mine = x.clone() if rank == root else torch.zeros(n)
        assert torch.equal(scatter(mine, comm, root), oracle)
        mine.tensor_split(p)[rank].add_(rank)
        mpi.Gather((oracle + rank).numpy(), whole.numpy(), root)
        gather(mine, comm, root)
        assert rank != root or torch.equal(mine, whole)
sys.stdout.write(f"rank {rank} is right\n")
"""


@pytest.mark.labs  # starts MPI
@pytest.mark.mpi
def test_over_mpi_they_are_scatter_and_gather(mpiexec):
    _, printed = mpiexec(3, "-c", f"import runpy; globals().update(runpy.run_path({__file__!r}))\n{MPI}")
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(3)], printed
