"""The same collectives over MPI: the bits of the simulated machine on every rank, for p = 1 to 4."""

import os
import signal
import subprocess
import sys

import pytest

from hpcdl.cluster import find_launcher

PROGRAM = r"""
import sys
import torch
from hpcdl.collectives import ALL_REDUCE, FAST, all_gather, fast_all_gather, fast_reduce_scatter, reduce_scatter
from hpcdl.comm import MPIComm, simulate

torch.set_num_threads(1)
comm = MPIComm(timeout=60)
for n in sorted({1, max(1, comm.size - 1), comm.size, 1000, 100_003}):
    rows = torch.randn(comm.size, n, generator=torch.Generator().manual_seed(n))
    for name, all_reduce in ALL_REDUCE.items():
        here, there = rows.clone(), rows.clone()
        simulate(lambda simulated: all_reduce(here[simulated.rank], simulated), comm.size)
        all_reduce(there[comm.rank], comm)
        assert torch.equal(here[comm.rank], there[comm.rank]), (name, n, comm.rank)
        if name in FAST:
            FAST[name](fast := rows[comm.rank].clone(), comm)
            assert torch.equal(here[comm.rank], fast), ("fast", name, n, comm.rank)
n = comm.size * comm.segment // 4 + 5 * 1024 * 1024 // 4 + 3  # more than one block
rows = torch.randn(comm.size, n, generator=torch.Generator().manual_seed(0))
plain, fast = rows[comm.rank].clone(), rows[comm.rank].clone()
ALL_REDUCE["ring"](plain, comm, 1 / 3)
FAST["ring"](fast, comm, 1 / 3)
assert torch.equal(plain, fast), "pieces"
assert torch.allclose(plain, rows.sum(0) / 3, atol=1e-5)
for make in (torch.empty, comm.empty):  # an ordinary tensor, and one that neighbours read where it is
    lent, plain = make(n).copy_(rows[comm.rank]), rows[comm.rank].clone()
    share = reduce_scatter(plain, comm, 1 / 3)
    assert torch.equal(fast_reduce_scatter(lent, comm, 1 / 3), share), "reduce-scatter"
    own = make(share.numel()).copy_(share)
    all_gather(plain, comm)
    fast_all_gather(lent.zero_(), comm, own)
    assert torch.equal(lent, plain), "all-gather"
comm.barrier()
sys.stdout.write(f"rank {comm.rank} agrees\n")  # one write: print makes two, and mpiexec mixes the ranks
"""


@pytest.mark.mpi
@pytest.mark.parametrize("p", [1, 2, *(pytest.param(p, marks=pytest.mark.labs) for p in (3, 4))])
def test_mpi_collectives_equal_simulated_ones(p):
    command = [find_launcher().path, "-n", str(p), sys.executable, "-c", PROGRAM]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
    assert sorted(printed.splitlines()) == [f"rank {rank} agrees" for rank in range(p)], printed
