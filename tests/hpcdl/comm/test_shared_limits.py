"""Tensors of `comm.empty` where something is amiss: messages that do not fit, memory refused, waits. Nothing stays."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.labs]  # messages over MPI are in the first tier: test_mpi.py, test_shared.py

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

def named():
    # The files with a name in shared memory that this process has mapped: other programs' come and go.
    with open("/proc/self/maps") as lines:
        return {line.split()[-1] for line in lines if "/dev/shm/" in line}

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
before_shm = named()
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
assert named() == before_shm
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


def test_misfitting_message_spares_its_sender(lenders):
    lenders(2, MISFIT)


@pytest.mark.parametrize(
    "case", [pytest.param("no memory", marks=pytest.mark.long), "walls", "one-way walls", "one rank without"]
)
def test_where_memory_cannot_be_shared_messages_go_as_others_do(lenders, case):
    lenders(2, REFUSED, f"CASE = {case!r}\n")


def test_a_tensor_that_cannot_be_opened_is_an_error_and_not_a_hang(lenders):
    lenders(2, CLOSED)


def test_nothing_is_left_of_tensors_that_are_gone(lenders):
    lenders(2, NOTHING_LEFT)


def test_the_wait_for_a_reader_has_a_limit_and_can_be_interrupted(lenders):
    lenders(2, WAITS)
