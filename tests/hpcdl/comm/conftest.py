"""Ranks over real MPI that lend each other their tensors: what programs of theirs begin and end with."""

import pytest

START = r"""
import os
import sys
import torch
from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import CommError, Group, MPIComm, TracingComm
from hpcdl.comm.mpi import memory, shared
from hpcdl.comm.mpi.cells import LONGEST, POINTER_BYTES, SHORTEST, NeighbourMemory

torch.set_num_threads(1)
lent, lend = 0, NeighbourMemory.lend

def counted(self, x, dest):
    global lent
    found = lend(self, x, dest)
    lent += found is not None
    return found

NeighbourMemory.lend = counted
comm = MPIComm(timeout=20)
p, rank = comm.size, comm.rank
after, before = (rank + 1) % p, (rank - 1) % p

def new(values, dtype=torch.float32):
    values = torch.as_tensor(values)
    x = comm.empty(values.numel(), dtype)
    return x.copy_(values.view(-1))

def meet(comm=comm):
    # The invitation to the cells, the question whether memory can be read, its answer: from here on tensors are lent.
    x = new(torch.zeros(SHORTEST))
    for _ in range(3):
        comm.sendrecv(x, after, torch.ones(SHORTEST), before)
        comm.barrier()

def expect(kind, said, call, *args):
    try:
        call(*args)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"{said}: nothing was raised")
"""
END = r"""
comm.barrier()
sys.stdout.write(f"rank {rank} is right\n")  # one write: print makes two, and mpiexec mixes the ranks
"""


@pytest.fixture
def lenders(mpiexec):
    """`lenders(p, program, before)` runs `before`, START and `program` on `p` ranks; all must be right."""

    def run(p: int, program: str, before: str = "") -> None:
        _, printed = mpiexec(p, "-c", before + START + program + END)
        assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(p)], printed

    return run
