"""The MPI machine, over real mpiexec."""

import pytest

pytestmark = pytest.mark.mpi

EVERYTHING = r"""
import sys
import torch
from hpcdl.comm import MPIComm, TracingComm

torch.set_num_threads(1)
comm = MPIComm(timeout=30)
p, rank = comm.size, comm.rank
after, before = (rank + 1) % p, (rank - 1) % p
for name in "float32 float64 bfloat16 float16 int64 uint8 bool complex64".split():
    dtype = getattr(torch, name)
    for n in (0, 1, 1000, 300_000):
        x, out = torch.full((n,), rank + 1).to(dtype), torch.zeros(n, dtype=dtype)
        comm.sendrecv(x, after, out, before)
        assert torch.equal(out, torch.full((n,), before + 1).to(dtype)), (dtype, n)
requests = [comm.isend(torch.tensor([10 * rank + tag]), after, tag=tag) for tag in range(3)]
for tag in (2, 0, 1):
    out = torch.zeros(1, dtype=torch.int64)
    comm.recv(out, before, tag=tag)
    assert out.item() == 10 * before + tag
for request in requests:
    request.wait()
w = torch.nn.Parameter(torch.full((2, 3), float(rank)))
comm.broadcast(w, root=p - 1)
assert (w == p - 1).all() and w.requires_grad
for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
    x = torch.full((1001,), rank + 1).to(dtype)
    comm.all_reduce(x)
    assert (x == p * (p + 1) // 2).all()
comm.barrier()
traced = TracingComm(comm)
traced.sendrecv(torch.zeros(5), after, torch.zeros(5), before)
assert [(e.op, e.peer, e.nbytes) for e in traced.trace] == [("send", after, 20), ("recv", before, 20)]
comm.barrier()
sys.stdout.write(f"rank {rank} is right\n")  # one write: print makes two, and mpiexec mixes the ranks
"""

FAULTS = r"""
import sys
import torch
from hpcdl.comm import CommError, MPIComm

comm = MPIComm(timeout=0.5)

def expect(kind, said, call, *args):
    try:
        call(*args)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"{said}: nothing was raised")

x = torch.zeros(4)
if comm.rank == 0:
    expect(TimeoutError, "rank 0 waited 0.5 s in recv(source=1, tag=9)", comm.recv, x, 1, 9)
    expect(ValueError, "rank 0: send: dest is 7; ranks are 0 to 1", comm.send, x, 7)
    expect(TypeError, "torch.bfloat16; MPI adds", comm.all_reduce, x.bfloat16())
comm.timeout = 20
comm.barrier()
if comm.rank == 0:
    comm.send(torch.zeros(8), 1)
    comm.send(torch.zeros(2), 1)
else:
    expect(CommError, "rank 1: recv(source=0): out has 16 bytes, the message more", comm.recv, x, 0)
    expect(CommError, "rank 1: recv(source=0): out has 16 bytes, the message 8 bytes", comm.recv, x, 0)
comm.barrier()
# MPI would take these for matching and return wrong numbers.
said = "rank 1 calls broadcast(root=0) where rank 0 called barrier()"
expect(CommError, said, *([comm.broadcast, x] if comm.rank else [comm.barrier]))
said = "all_reduce(): x is 3 float32 on rank 1 and 2 float32 on rank 0"
expect(CommError, said, comm.all_reduce, torch.zeros(2 + comm.rank))
expect(CommError, "4 int32 on rank 1 and 4 float32", comm.all_reduce, x.int() if comm.rank else x)
unchecked = MPIComm(check=False)
unchecked.all_reduce(y := torch.ones(2))
assert y.tolist() == [2.0, 2.0]
sys.stdout.write(f"rank {comm.rank} is right\n")  # one write: print makes two, and mpiexec mixes the ranks
"""


@pytest.mark.parametrize("p", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long), 3])
def test_every_operation_moves_every_dtype_and_size(mpiexec, p):
    code, printed = mpiexec(p, "-c", EVERYTHING)
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(p)], printed
    assert code == 0


def test_what_goes_wrong_is_said_with_rank_operation_and_rule(mpiexec):
    code, printed = mpiexec(2, "-c", FAULTS)
    assert {"rank 0 is right", "rank 1 is right"} <= set(printed.splitlines()), printed
    assert code == 0
