"""Tensors of `comm.empty`: neighbours read them where they are, and nobody sees a difference but in time."""

import pytest

pytestmark = pytest.mark.mpi

START = r"""
import os
import sys
import torch
from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import CommError, Group, MPIComm, TracingComm
from hpcdl.comm.mpi import memory, shared
from hpcdl.comm.mpi.cells import LONGEST, POINTER_BYTES, SHORTEST, Cells

torch.set_num_threads(1)
lent, lend = 0, Cells.lend

def counted(self, x, dest):
    global lent
    found = lend(self, x, dest)
    lent += found is not None
    return found

Cells.lend = counted
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

EVERYTHING = r"""
meet()
for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
    for nbytes in (0, 8, POINTER_BYTES - 8, POINTER_BYTES, SHORTEST - 8, SHORTEST, SHORTEST + 8, LONGEST, LONGEST + 8):
        for start, end in ((0, 0), (3, 2)):  # of a longer tensor
            n, known = nbytes // dtype.itemsize, lent
            whole = new(torch.full((start + n + end,), rank + 1), dtype)
            out = torch.zeros(start + n, dtype=dtype)
            comm.sendrecv(whole[start : start + n], after, out[start:], before)
            assert (out[start:] == torch.full((n,), before + 1).to(dtype)).all(), (dtype, nbytes, start)
            assert not out[:start].any()
            assert lent - known == (nbytes >= SHORTEST), (dtype, nbytes, start)

# To add, weighted and not, straight from the neighbour's tensor; the trace sees no difference, a group is some ranks.
for machine in (comm, traced := TracingComm(comm), Group(comm, list(range(p))[::-1])):
    right, left = (machine.rank + 1) % p, (machine.rank - 1) % p
    for n in (3, SHORTEST, LONGEST // 4 + 1):
        total, x = machine.empty(n).fill_(1), machine.empty(n).fill_(2)
        machine.sendrecv_add(x, right, total, left, torch.empty(n))
        assert (total == 3).all()
        machine.sendrecv_add(x, right, total, left, torch.empty(n), weight=0.5)
        assert (total == 3.5).all()
assert [event.op for event in traced.trace] == ["send", "recv", "accumulate"] * 6

# The sum goes back: into the neighbour's tensor, or in a message where that was an ordinary one, on one side or both.
for machine in (comm, TracingComm(comm), Group(comm, list(range(p))[::-1])):
    right, left = (machine.rank + 1) % p, (machine.rank - 1) % p
    for n in (3, SHORTEST, LONGEST // 4 + 1):
        for lending in ([], [0], range(p)):
            x = machine.empty(n) if machine.rank in lending else torch.empty(n)
            total = torch.arange(n, dtype=torch.float32).add_(machine.rank).view(1, n)
            machine.sendrecv_add(x.fill_(2), right, total, left, torch.empty(1, n), weight=0.5, back=True)
            assert torch.equal(total, torch.arange(n).add(machine.rank).mul(0.5).add(1).view(1, n))
            assert torch.equal(x, torch.arange(n).add(right).mul(0.5).add(1))

# What was sent may be changed at once, and was not read after that; a matrix, a parameter and another type of its bits.
x, out = new(torch.zeros(4 * SHORTEST)), torch.zeros(4 * SHORTEST)
w, bits = torch.nn.Parameter(x.view(4, SHORTEST)), x.view(torch.int32)
for i in range(60):
    x.fill_(i)
    comm.sendrecv((x, w, bits)[i % 3], after, (out, out.view(4, -1), out.view(torch.int32))[i % 3], before)
    x.fill_(-1)
    assert (out == i).all()

# Threads lend parts of one tensor beside each other, and each gets what was meant for it.
lane, other = comm.background(), MPIComm(comm.mpi)
x = new(torch.full((8 * SHORTEST,), float(rank)))
mine, theirs = x.split(4 * SHORTEST)
known = lent
for i in range(4):
    lane.start(lambda comm: ring_all_reduce(theirs, comm, weight=1 / p))
    for machine in (comm, other):
        machine.sendrecv(mine, after, out, before)
        assert (out == before).all()
    lane.wait()
assert torch.allclose(theirs, torch.full_like(theirs, (p - 1) / 2))
assert lent >= known + 8 + (4 * (p - 1) - 3 if p > 1 else 0)  # the thread's first three messages make way
lane.close()

for bad in (-1, 1.5):
    expect((RuntimeError, TypeError), "", comm.empty, bad)
"""

ORDER = r"""
meet()
n = SHORTEST
for first in "sent", "came":
    x, out = new(torch.full((n,), float(rank))), torch.zeros(n)
    requests = {"sent": comm.isend(x, after), "came": comm.irecv(out, before)}
    requests.pop(first).wait()
    requests.popitem()[1].wait()
    assert (out == before).all()

# More than can be lent of one tensor, in the other order.
many = shared.LOANS + 6
x = new(torch.arange(many).repeat_interleave(n))
known = lent
sent = [comm.isend(part, after, tag) for tag, part in enumerate(x.split(n))]
assert lent == known + shared.LOANS
outs = torch.zeros(many, n)
came = [comm.irecv(out, before, tag) for tag, out in enumerate(outs)]
for request in [*sent, *came][:: -1 if rank else 1]:
    request.wait()
assert torch.equal(outs.view(-1), x)
known = lent
for part in x.split(n):
    comm.sendrecv(part, after, outs[0], before)
assert lent == known + many  # what was lent has come back

# A receive that is posted lets its sender go on while its rank waits for something else: a barrier, another message.
x, out, other = new(torch.full((n,), float(rank))), torch.zeros(n), torch.zeros(n)
if rank == 0:
    comm.send(x, 1)
    comm.barrier()
    comm.send(x, 1, tag=1)
    comm.send(x, 1, tag=2)
elif rank == 1:
    request = comm.irecv(out.fill_(7), 0)
    comm.barrier()
    request.wait()
    request = comm.irecv(out, 0, tag=1)
    comm.recv(other, 0, tag=2)
    assert (other == 0).all()
    request.wait()
    assert (out == 0).all()
else:
    comm.barrier()

# So does the wait for the background.
lane, total = comm.background(), torch.ones(4)
if rank == 0:
    comm.send(x, 1)
elif rank == 1:
    request = comm.irecv(out.fill_(7), 0)
lane.start(lambda comm: ring_all_reduce(total, comm))
lane.wait()
lane.close()
assert (total == p).all()
if rank == 1:
    request.wait()
    assert (out == 0).all()
"""

MISFIT = r"""
meet()
x, one = new(torch.arange(SHORTEST)), torch.zeros(1)
outs = [torch.zeros(n) for n in (SHORTEST - 1, SHORTEST + 1, SHORTEST // 8, POINTER_BYTES // 4, 5, 1, 0)]
said = f"the message {x.nbytes} bytes; both sides need"
if rank == 0:
    known = lent
    for _ in outs:
        comm.send(x, 1)
    comm.barrier()
    comm.send(x, 1)
    comm.send(x, 1, tag=1)
    comm.send(one, 1, tag=2)
    assert lent == known + len(outs) + 2
else:
    for out in outs:
        expect(CommError, f"rank 1: recv(source=0): out has {out.nbytes} bytes, {said}", comm.recv, out, 0)
    # One that came while its rank waited for another: the other is right, and the error is said where it belongs.
    request = comm.irecv(out := torch.zeros(5), 0)
    comm.barrier()
    good = torch.zeros(SHORTEST)
    comm.recv(good, 0, tag=1)
    assert torch.equal(good, x)
    expect(CommError, f"rank 1: irecv(source=0).wait(): out has 20 bytes, {said}", request.wait)
    request.wait()  # once
    comm.recv(one.fill_(1), 0, tag=2)
    assert one.item() == 0
"""

REFUSED = r"""
def refuse(*_):
    raise PermissionError("forbidden")

if CASE == "no memory":
    os.memfd_create = refuse
elif CASE == "walls":
    memory.os.open = refuse
elif CASE == "one-way walls":  # the sender may come, the receiver may not: what it is asked to try is not there
    create = shared.create
    def closed(nbytes):
        found = create(nbytes)
        if nbytes == 0:
            found.bytes[:16] = bytes(16)
        return found
    shared.create = closed
elif CASE == "one rank without":
    if rank == 0:
        shared.create = lambda nbytes: None
meet()
x, out = new(torch.full((LONGEST // 2,), float(rank))), torch.zeros(LONGEST // 2)
for part, into in zip(x.split([SHORTEST, LONGEST // 2 - SHORTEST]), out.split([SHORTEST, LONGEST // 2 - SHORTEST])):
    comm.sendrecv(part, after, into, before)
assert (out == before).all()
ring_all_reduce(x, comm)
assert (x == 1).all()
assert bool(lent) == (CASE == "one rank without" and rank == 1), lent
"""

CLOSED = r"""
meet()
x = new(torch.zeros(SHORTEST))
if rank == 0:
    comm.timeout = 0.5
    expect(TimeoutError, "rank 0 waited 0.5 s in send(dest=1)", comm.send, x, 1)
else:
    shared.attach = lambda handle: None
    expect(CommError, "rank 1: recv(source=0): the sender's tensor cannot be opened", comm.recv, x, 0)
comm.timeout = 20
"""

NOTHING_LEFT = r"""
import gc

def files():
    return len(os.listdir("/proc/self/fd"))

def mappings():
    with open("/proc/self/maps") as lines:
        return sum("memfd:hpcdl" in line for line in lines)

def held():
    # Bytes of all such memory that this process has open, its own and its neighbours'.
    found = {}
    for file in os.listdir("/proc/self/fd"):
        try:
            if "memfd:hpcdl" in os.readlink(f"/proc/self/fd/{file}"):
                status = os.stat(f"/proc/self/fd/{file}")
                found[status.st_ino] = 512 * status.st_blocks
        except FileNotFoundError:  # the one that listed the folder
            pass
    return sum(found.values())

meet()
known, out = (files(), mappings(), held()), torch.zeros(SHORTEST)
before_shm = os.listdir("/dev/shm")
for i in range(200):
    x = new(torch.full((SHORTEST + i,), float(i)))
    comm.sendrecv(x[i:], after, out, before)
    assert (out == i).all()
    view = x[5:].view(2, -1) if i % 2 else x[5:6]
    del x
    assert len(shared._own) == 1
    del view
    assert not shared._own
comm.barrier()
assert files() <= known[0] + 3 and mappings() <= known[1] + 3, (known, files(), mappings())

# A large one is free at once, though the neighbour still has it open.
x, large = new(torch.zeros(1 << 23)), torch.zeros(1 << 23)
comm.sendrecv(x, after, large, before)
comm.barrier()
assert held() > known[2] + x.nbytes
del x
comm.barrier()
assert held() < known[2] + (1 << 22), (known[2], held())

# Past a number of them tensors are ordinary ones, and all are alike to send.
many = [new(torch.full((SHORTEST,), float(i))) for i in range(shared.TENSORS + 3)]
assert len(shared._own) == shared.TENSORS
for i, x in enumerate(many):
    comm.sendrecv(x, after, out, before)
    assert (out == i).all()
del many, x
assert not shared._own
assert sorted(os.listdir("/dev/shm")) == sorted(before_shm)
"""

WAITS = r"""
import signal
import threading
import time

meet()
x, out = new(torch.full((SHORTEST,), 3.0)), torch.zeros(SHORTEST)
if rank == 0:
    comm.timeout = 0.3
    expect(TimeoutError, "rank 0 waited 0.3 s in send(dest=1)", comm.send, x, 1)
    comm.timeout = 20
    seen = []
    threading.Timer(0.2, lambda: seen.append(comm.situation())).start()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.4)
    request, begin = comm.isend(x, 1), time.monotonic()
    expect(KeyboardInterrupt, "", request.wait)
    assert time.monotonic() - begin < 15  # and not the timeout of 20 s
    assert seen[0]["text"] == "isend(dest=1).wait()" and seen[0]["ranks"] == [("dest", 1)], seen
    comm.barrier()
    request.wait()
    x.fill_(4)
    comm.send(x, 1)
else:
    time.sleep(1)
    comm.barrier()
    for value in (3, 3, 4):
        comm.recv(out, 0)
        assert (out == value).all()
"""


def run(mpiexec, p: int, program: str, before: str = "") -> None:
    _, printed = mpiexec(p, "-c", before + START + program + END)
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(p)], printed


@pytest.mark.parametrize("p", [pytest.param(1, marks=pytest.mark.long), 2, 3])
def test_every_size_dtype_and_part_arrives(mpiexec, p):
    run(mpiexec, p, EVERYTHING)


@pytest.mark.parametrize("p", [2, pytest.param(3, marks=pytest.mark.long)])
def test_waits_may_come_in_any_order(mpiexec, p):
    run(mpiexec, p, ORDER)


def test_a_message_that_does_not_fit_is_named_with_its_size_and_its_sender_goes_on(mpiexec):
    run(mpiexec, 2, MISFIT)


@pytest.mark.parametrize(
    "case", [pytest.param("no memory", marks=pytest.mark.long), "walls", "one-way walls", "one rank without"]
)
def test_where_memory_cannot_be_shared_messages_go_as_others_do(mpiexec, case):
    run(mpiexec, 2, REFUSED, f"CASE = {case!r}\n")


def test_a_tensor_that_cannot_be_opened_is_an_error_and_not_a_hang(mpiexec):
    run(mpiexec, 2, CLOSED)


def test_nothing_is_left_of_tensors_that_are_gone(mpiexec):
    run(mpiexec, 2, NOTHING_LEFT)


def test_the_wait_for_a_reader_has_a_limit_and_can_be_interrupted(mpiexec):
    run(mpiexec, 2, WAITS)
