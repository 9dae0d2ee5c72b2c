"""Tensors of `comm.empty`: neighbours read them in place, and only the time differs."""

import pytest

pytestmark = pytest.mark.mpi

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

# Used where it lies: in the neighbour's tensor, which is its own again when that is done, also where that fails.
for machine in (comm, TracingComm(comm)):
    for n in (3, SHORTEST, LONGEST // 4 + 1):
        scratch, seen = torch.full((1, n), -1.0), []
        use = lambda x: seen.append((x.shape, x.sum().item(), x.data_ptr() == scratch.data_ptr()))
        request = machine.isend(new(torch.full((n,), float(rank))), after)
        machine.recv_with(use, scratch, before)
        request.wait()
        assert seen == [((n,), n * before, machine is not comm or n == 3)], (seen, n)
request = comm.isend(x := new(torch.full((SHORTEST,), 1.0)), after)
expect(ZeroDivisionError, "", comm.recv_with, lambda x: 1 / 0, torch.empty(SHORTEST), before)
request.wait()
request = comm.isend(x[:3], after)
expect(CommError, "out has 8 bytes", comm.recv_with, print, torch.empty(2), before)
request.wait()

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


@pytest.mark.parametrize("p", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.labs), 3])
def test_every_size_dtype_and_part_arrives(lenders, p):
    lenders(p, EVERYTHING)


@pytest.mark.parametrize("p", [2, pytest.param(3, marks=pytest.mark.long)])
def test_waits_may_come_in_any_order(lenders, p):
    lenders(p, ORDER)
