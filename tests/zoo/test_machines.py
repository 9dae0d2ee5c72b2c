"""A part of the zoo over MPI and gloo; started with mpiexec, this file is one of the ranks."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

SHARE, SAMPLE, FEWER = 3, 12, 60  # each third entry, each twelfth, each sixtieth


def check(connect, each: int):
    """Train one entry of `each` under each wrapper, and compare with the page.

    `connect` returns the communicator of the next entries, after each refusal again. A refusal in the middle of a step
    leaves messages without a receiver: over MPI the next entry gets a new communicator. A new group of gloo would keep
    five files and three threads open, so all entries share one.
    """
    import torch
    from zoo import page
    from zoo.outcomes import RIGHT, attempt, float64, reference, verdict, without_ranks
    from zoo.registry import ENTRIES, WRAPPERS

    from hpcdl.sharding.gathering import OTHER_ORDERS

    torch.set_num_threads(1)
    comm, chosen = connect(), set(list(ENTRIES)[::each])
    with float64():
        for (name, column), stated in page.read().items():
            if (name in chosen or stated == OTHER_ORDERS) and (stated == RIGHT or not WRAPPERS[column].alone):
                result = attempt(comm, name, column)
                expected = reference(name, column) if stated == RIGHT else {}
                said = without_ranks(result) if isinstance(result, str) else result
                found = verdict(ENTRIES[name], column, [said], expected)
                assert found == stated, (name, column, found)
                comm = comm if found == RIGHT else connect()
    print("right", flush=True)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "each", [pytest.param(SAMPLE, marks=pytest.mark.labs), pytest.param(SHARE, marks=pytest.mark.long)]
)
def test_a_part_of_the_zoo_over_mpi(mpiexec, each):
    code, printed = mpiexec(2, __file__, str(each))
    assert (code, printed.count("right")) == (0, 2), printed


@pytest.mark.parametrize(
    "each", [pytest.param(FEWER, marks=pytest.mark.labs), pytest.param(SHARE, marks=pytest.mark.long)]
)
def test_a_part_of_the_zoo_over_gloo(tmp_path, each):
    import torch.multiprocessing

    torch.multiprocessing.spawn(_gloo, (str(tmp_path / "store"), each), nprocs=2)


def _gloo(rank, store, each):
    import torch.distributed as dist

    from hpcdl.comm import TorchComm

    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    check(TorchComm, each)
    os._exit(0)  # a refusal in the middle of a step leaves messages without a receiver


if __name__ == "__main__":
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    check(lambda: MPIComm(MPI.COMM_WORLD.Dup(), timeout=60), int(sys.argv[1]))
    os._exit(0)
