"""Long messages through memory that ranks share: they arrive as any other, and where they cannot, MPI carries them."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.labs]  # messages over MPI are in the first tier: test_mpi.py, test_shared.py

START = r"""
import os
import sys
import torch
from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import CommError, MPIComm, TracingComm
from hpcdl.comm.mpi import memory
from hpcdl.comm.mpi.cells import CELLS, LONGEST, SHORTEST, NeighbourMemory

torch.set_num_threads(1)
ways = {"cell": 0, "MPI": 0, "back": 0}
put, deposit = NeighbourMemory.put, NeighbourMemory.deposit

def counted(self, x, dest):
    place = put(self, x, dest)
    ways["MPI" if place is None else "cell"] += 1
    return place

def counted_back(self, x, dest, weight):
    found = deposit(self, x, dest, weight)
    ways["back"] += found is not None
    return found

NeighbourMemory.put, NeighbourMemory.deposit = counted, counted_back
comm = MPIComm(timeout=20)
p, rank = comm.size, comm.rank
after, before = (rank + 1) % p, (rank - 1) % p

def meet(comm=comm):
    # From here on both neighbours have each other's invitation.
    for _ in range(2):
        comm.sendrecv(torch.zeros(SHORTEST), after, torch.ones(SHORTEST), before)
        comm.barrier()
"""
END = r"""
comm.barrier()
sys.stdout.write(f"rank {rank} is right\n")  # one write: print makes two, and mpiexec mixes the ranks
"""

EVERY_SIZE = r"""
meet()
assert "/memfd:hpcdl (deleted)" in open("/proc/self/maps").read()  # no name in /dev/shm that could outlive its process
used = ways["cell"]

def by_cells():
    request = comm.isend(x, after)
    comm.recv(out, before)
    request.wait()

for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
    for nbytes in (32, SHORTEST - 8, SHORTEST, SHORTEST + 8, LONGEST, LONGEST + 8):
        n = nbytes // dtype.itemsize
        x, out = torch.full((n,), rank + 1).to(dtype), torch.zeros(n, dtype=dtype)
        for exchange in (lambda: comm.sendrecv(x, after, out, before), by_cells):
            out.zero_()
            exchange()
            assert torch.equal(out, torch.full((n,), before + 1).to(dtype)), (dtype, nbytes)
            comm.barrier()
assert ways["cell"] - used == 4 * 3, ways  # of those that were begun and left; sendrecv has MPI copy once

# More under way than there are cells, received in another order; what was given to isend may not change, but a cell's
# message has left already.
n, many = SHORTEST // 4, 2 * CELLS
requests = [comm.isend(torch.full((n,), float(tag)), after, tag) for tag in range(many)]
comm.barrier()
out = torch.zeros(n)
for tag in reversed(range(many)):
    comm.recv(out, before, tag)
    assert (out == tag).all()
for request in requests:
    request.wait()
comm.barrier()
used = ways["cell"]
requests = [comm.isend(torch.ones(n), after, tag) for tag in range(CELLS)]
assert ways["cell"] == used + CELLS  # all cells are free again
for tag in range(CELLS):
    comm.recv(out, before, tag)
    requests[tag].wait()

# To add, from a cell or from `scratch`, and what a trace tells of it.
traced = TracingComm(comm)
for machine in (comm, traced):
    for n in (3, SHORTEST, LONGEST // 4 + 1):
        total = torch.ones(n)
        machine.sendrecv_add(torch.full((n,), 2.0), after, total, before, torch.empty(n))
        assert (total == 3).all()
        machine.sendrecv_add(torch.full((n,), 2.0), after, total, before, torch.empty(n), weight=0.5)
        assert (total == 3.5).all()
        comm.barrier()
assert [event.op for event in traced.trace] == ["send", "recv", "accumulate"] * 6
assert [event.nbytes for event in traced.trace][:2] == [12, 12]

# To add, and have the sum back: from the cell where the message lay, or in another message where all cells are full.
n, used = SHORTEST // 4, ways["back"]
for full in (False, True):
    others = [comm.isend(torch.ones(n), after, tag) for tag in range(1, 1 + full * CELLS)]
    for dtype, weight in ((torch.float32, 0.5), (torch.float32, 1), (torch.int64, 1)):
        x, total = torch.full((n,), 2 * (rank + 1), dtype=dtype), torch.full((n,), 4, dtype=dtype)
        comm.sendrecv_add(x, after, total, before, torch.empty_like(x), weight, back=True)
        assert (total == weight * (4 + 2 * (before + 1))).all()
        assert (x == weight * (4 + 2 * (rank + 1))).all()
    assert ways["back"] == used + 3
    for request in others:
        comm.recv(torch.zeros(n), before, request.tag)
        request.wait()
    comm.barrier()

# Two on one MPI communicator, and threads beside them, do not take each other's messages for their own.
other, lanes = MPIComm(comm.mpi), [comm.background(), comm.background()]
sums = [torch.full((2 * SHORTEST,), float(rank + i)) for i in range(4)]
for lane, x in zip(lanes * 2, sums):
    lane.start(lambda comm, x=x: ring_all_reduce(x, comm))
    lane.wait()
    for machine in (other, comm):
        out = torch.zeros(SHORTEST)
        machine.sendrecv(torch.full((SHORTEST,), float(rank)), after, out, before)
        assert (out == before).all()
for i, x in enumerate(sums):
    assert (x == sum(range(p)) + p * i).all()
for lane in lanes:
    lane.close()

# Numbers that could be taken for a place are none: it starts with a token.
out = torch.zeros(32, dtype=torch.uint8)
comm.sendrecv(torch.arange(32, dtype=torch.uint8), after, out, before)
assert out.tolist() == list(range(32))
"""

MISFIT = r"""
meet()
x = torch.zeros(SHORTEST)
if rank == 0:
    comm.send(x, 1)
    comm.send(x, 1)
else:
    for out in (x[:-1], torch.zeros(SHORTEST + 1)):
        try:
            comm.recv(out, 0)
        except CommError as error:
            assert f"out has {out.nbytes} bytes, the message {x.nbytes} bytes" in str(error), error
        else:
            raise AssertionError("a message that does not fit was taken")
comm.barrier()
used = ways["cell"]
requests = [comm.isend(x, after, tag) for tag in range(CELLS)]
assert ways["cell"] == used + CELLS  # none is lost to the messages that did not fit
for tag in range(CELLS):
    comm.recv(torch.zeros(SHORTEST), before, tag)
    requests[tag].wait()
"""

REFUSED = r"""
def refuse(*_):
    raise PermissionError("forbidden")

if CASE == "no memory":
    os.memfd_create = refuse
elif CASE == "walls":
    memory.os.open = refuse
elif CASE == "another machine":  # there the same number may be another process's file
    invite = NeighbourMemory.invite
    def elsewhere(self, source):
        invite(self, source)
        if self._from[source] is not None:
            self._from[source].bytes[:16] = bytes(16)
    NeighbourMemory.invite = elsewhere
meet()
for n in (SHORTEST, LONGEST // 4):
    out = torch.zeros(n)
    comm.sendrecv(torch.full((n,), float(rank)), after, out, before)
    assert (out == before).all()
assert ways["cell"] == 0, ways
"""


def all_right(printed: str, p: int) -> bool:
    return sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(p)]


@pytest.mark.parametrize("p", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.labs), 3])
def test_every_size_order_and_number_of_messages_arrives(mpiexec, p):
    _, printed = mpiexec(p, "-c", START + EVERY_SIZE + END)
    assert all_right(printed, p), printed


def test_a_message_that_does_not_fit_is_named_with_its_own_size(mpiexec):
    _, printed = mpiexec(2, "-c", START + MISFIT + END)
    assert all_right(printed, 2), printed


@pytest.mark.parametrize("case", ["no memory", "walls", "another machine"])
def test_where_memory_cannot_be_shared_mpi_carries_everything(mpiexec, case):
    _, printed = mpiexec(2, "-c", f"CASE = {case!r}\n{START}{REFUSED}{END}")
    assert all_right(printed, 2), printed
