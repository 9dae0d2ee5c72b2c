"""Shared tensors: who reads and writes when in virtual time, what is lost, and one memory over MPI."""

import pytest
import torch

from hpcdl.comm import Access, CommError, Group, RankError, TracingComm, shared_tensor, simulate

GAMMA = 0.25  # of float32: reading or writing an element takes 1 s


def test_disjoint_elements_end_as_in_a_serial_run_in_every_order():
    edges, gradients = [[0, 3], [1, 5], [2, 4]], torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])

    def rank(comm):
        v = shared_tensor(comm, 6)
        for k in range(4):
            v.add(edges[comm.rank], gradients[comm.rank] * (k + 1))
        comm.barrier()
        return v.tensor

    serial = torch.zeros(6)
    for edge, gradient in zip(edges, gradients, strict=True):
        for k in range(4):
            serial[edge] += gradient * (k + 1)
    for seed in range(8):
        for gamma in (0.0, GAMMA):
            assert torch.equal(simulate(rank, 3, seed=seed, gamma=gamma).results[0], serial)


@pytest.mark.parametrize("gap", [0.25, 0.5, 0.75, 1.25, 1.5, 3.0])
def test_an_update_is_lost_if_and_only_if_the_windows_overlap(gap):
    """An add reads after 1 s and writes after 2: the other's write between the two is lost."""

    def rank(comm):
        v = shared_tensor(comm, 1)
        comm.compute(gap * comm.rank)
        v.add(0, 1.0)
        comm.barrier()
        return v.read().item()

    assert simulate(rank, 2, gamma=GAMMA).results[0] == (1.0 if gap < 1 else 2.0)


def test_late_write_loses_updates_in_between():
    def rank(comm, whole):
        v = shared_tensor(comm, 2)
        if comm.rank:
            comm.compute(10.0)
            v.add(1, 5.0)
        else:
            w = v.read()
            comm.compute(20.0)
            v.write(None, w + 1) if whole else v.add(None, 1.0)
        comm.barrier()
        return v.tensor.tolist()

    assert simulate(rank, 2, True, gamma=GAMMA).results[0] == [1.0, 1.0]  # the other's 5 is undone
    assert simulate(rank, 2, False, gamma=GAMMA).results[0] == [1.0, 6.0]


def test_a_read_sees_each_element_at_a_time_of_its_own():
    def rank(comm, begin):
        v = shared_tensor(comm, 4)
        if comm.rank:
            comm.compute(1.5)
            v.write([0, 2], 7.0)  # after 2.5 s, and after 3.5
            return None
        comm.compute(begin)
        return v.read().tolist()  # after 1, 2, 3 and 4 s more

    found = [simulate(rank, 2, begin, gamma=GAMMA).results[0] for begin in (0.0, 1.0, 2.0)]
    assert found == [[0, 0, 0, 0], [0, 0, 7, 0], [7, 0, 7, 0]]


def contend(comm):
    v = shared_tensor(comm, 2, torch.float64)
    for k in range(5):
        v.add([k % 2, 1], torch.tensor([1.0, 10.0]) * (comm.rank + 1))
    comm.barrier()
    return v.tensor.tolist(), v.events


def test_a_run_can_be_replayed_by_its_seed_and_seeds_differ():
    first = [simulate(contend, 3, seed=seed).results[0] for seed in range(8)]
    assert first == [simulate(contend, 3, seed=seed).results[0] for seed in range(8)]
    assert len({tuple(values) for values, _ in first}) > 2


@pytest.mark.parametrize("gamma", [0.0, 0.125])
def test_the_events_tell_all_that_happened_in_order(gamma):
    for seed in range(4):
        results = simulate(contend, 3, seed=seed, gamma=gamma).results
        values, events = results[0]
        assert all(result[1] == events for result in results)
        memory = [0.0, 0.0]
        for _, _, op, element, value in events:
            if op == "write":
                memory[element] = value
            assert memory[element] == value
        assert memory == values
        assert [event.seconds for event in events] == sorted(event.seconds for event in events)
        assert len(events) == 3 * 5 * 2 * 2


def test_an_access_takes_gamma_per_byte_and_more_on_a_slow_rank():
    def rank(comm):
        v = shared_tensor(comm, 3, torch.float64)
        v.write([2], 1.5)
        return v.read([2, 2]).tolist(), comm.clock(), v.events

    simulation = simulate(rank, 2, gamma=GAMMA, slow={1: 3.0})
    assert [clock for _, clock, _ in simulation.results] == [6.0, 18.0]
    assert simulation.results[1][0] == [1.5, 1.5]
    assert Access(6.0, 1, "write", 2, 1.5) in simulation.results[0][2]
    assert next(tuple(e) for e in simulation.trace if e.op == "read" and e.rank) == (6.0, 12.0, 1, "read", -1, 8, 0)


def test_an_index_may_be_an_int_a_slice_ints_or_all():
    def rank(comm):
        v = shared_tensor(TracingComm(comm), 5, torch.int64)
        v.write(None, torch.arange(5))
        v.add([1, 1], 10)  # twice
        v.add(slice(3, None), torch.tensor([100, 200], dtype=torch.int32))
        kept = v.read(4)
        v.write(4, 0)
        return [kept.tolist(), *(v.read(i).tolist() for i in (None, slice(None, None, -2), torch.tensor([2, 1]), []))]

    assert simulate(rank, 1).results[0] == [[204], [0, 21, 2, 103, 0], [0, 2, 0], [2, 21], []]


BAD = {
    "a far index": (lambda v: v.read([0, 5]), ValueError, "rank 0: read: index has 5; elements are 0 to 2"),
    "a negative one": (lambda v: v.write(-1, 0.0), ValueError, "rank 0: write: index has -1"),
    "a mask": (lambda v: v.add(torch.ones(3) > 0, 1.0), TypeError, "rank 0: add: index is torch.bool"),
    "a fraction": (lambda v: v.read(0.5), TypeError, "index is torch.float32; elements are numbered by ints"),
    "too few values": (lambda v: v.add(None, [1.0, 2.0]), ValueError, "add: 2 values for 3 elements; give one for"),
}


@pytest.mark.parametrize("bad", BAD)
def test_wrong_arguments_are_named(bad):
    call, kind, said = BAD[bad]

    def rank(comm):
        with pytest.raises(kind, match=said):
            call(shared_tensor(comm, 3))

    simulate(rank, 1)


def test_what_cannot_be_shared_is_said():
    with pytest.raises(RankError, match="rank 0: shared_tensor: numel is -1; a tensor has 0 elements or more"):
        simulate(lambda comm: shared_tensor(comm, -1) and None, 1)
    with pytest.raises(RankError, match="shared_tensor: dtype is 'float'; it is one of torch's"):
        simulate(lambda comm: shared_tensor(comm, 1, "float") and None, 1)
    with pytest.raises(CommError, match=r"x is [12] float32 on rank 1 and [12] float32 on rank 0"):
        simulate(lambda comm: shared_tensor(comm, comm.rank + 1) and None, 2)
    with pytest.raises(RankError, match="rank 0: Group shares no tensors; use MPIComm on one machine, or simulate"):
        simulate(lambda comm: shared_tensor(Group(comm, [0]), 1) and None, 1)


MPI = r"""
import gc
import os
import sys
import torch
import hpcdl.comm.mpi.one_memory as one_memory
from hpcdl.comm import CommError, MPIComm, TracingComm, shared_tensor

torch.set_num_threads(1)
comm = MPIComm(timeout=60)
p, rank = comm.size, comm.rank

def mappings():
    with open("/proc/self/maps") as lines:
        return sum("memfd:hpcdl" in line for line in lines)

def files():
    return sum("memfd:hpcdl" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{fd}"))

before = mappings(), files()
for machine in (comm, TracingComm(comm)):
    for dtype in (torch.float32, torch.int64):
        v = shared_tensor(machine, 1000, dtype)
        assert not v.tensor.any() and v.tensor.dtype == dtype
        comm.barrier()
        v.write([rank], rank + 1)
        v.tensor[p + rank] = 10 * (rank + 1)  # the raw view
        v.add([2 * p + rank, 2 * p + rank], 3)
        comm.barrier()
        whole = [*range(1, p + 1), *(10 * r for r in range(1, p + 1)), *[6] * p]
        assert v.read(slice(0, 3 * p)).tolist() == whole == v.tensor[: 3 * p].tolist()
        copy = v.read(0)
        comm.barrier()
        v.write(0, 0)
        assert copy.item() == 1
        comm.barrier()
        # Disjoint elements without any lock: nothing is lost.
        mine = slice(3 * p + 100 * rank, 3 * p + 100 * (rank + 1))
        for _ in range(200):
            v.add(mine, 1)
        comm.barrier()
        assert (v.tensor[3 * p : 3 * p + 100 * p] == 200).all()
        comm.barrier()
assert shared_tensor(comm, 0).read().tolist() == []
del v, copy
gc.collect()
assert (mappings(), files()) == before, "the memory is freed with the last that holds it"

try:
    shared_tensor(comm, 4 + (rank == 1))
except CommError as error:
    assert "x is 5 float32 on rank 1 and 4 float32 on rank 0" in str(error), error
else:
    raise AssertionError("nothing was raised")
if rank == 1:
    one_memory.attach = lambda handle: None  # as on another machine
try:
    shared_tensor(comm, 4)
except NotImplementedError as error:
    said = f"rank {rank}: shared_tensor: rank 1 cannot open rank 0's memory; all ranks must be on one Linux machine"
    assert said in str(error), error
else:
    raise AssertionError("nothing was raised")
sys.stdout.write(f"rank {rank} is right\n")
"""


@pytest.mark.labs  # starts MPI
@pytest.mark.mpi
def test_ranks_share_one_memory_over_mpi(mpiexec):
    _, printed = mpiexec(3, "-c", MPI)
    assert sorted(printed.splitlines()) == [f"rank {rank} is right" for rank in range(3)], printed


INTO = {  # values, and the dtype of the vector that holds them exactly
    "whole float": (2.0, torch.int64),
    "int": (7, torch.int8),
    "bool": (True, torch.float32),
    "double": (0.1, torch.float64),
    "int in complex": (3, torch.complex64),
    "floats": (torch.tensor([0.5, 1.5]).double(), torch.float32),
}
NOT_INTO = {
    "fraction": (0.75, torch.int64),
    "NaN": (float("nan"), torch.int32),
    "overflow": (300, torch.int8),
    "negative": (-1, torch.uint8),
    "two": (2, torch.bool),
    "complex": (1j, torch.float64),
    "one of several": (torch.tensor([1.0, 0.5]), torch.int16),
}


def changed(way, values, dtype):
    def rank(comm):
        v = shared_tensor(comm, 2, dtype)
        getattr(v, way)([0, 1], values)
        return v.read()

    return simulate(rank, 1).results[0]


@pytest.mark.parametrize("way", ["add", "write"])
@pytest.mark.parametrize(("values", "dtype"), INTO.values(), ids=INTO)
def test_values_of_another_dtype(values, dtype, way):
    assert torch.equal(changed(way, values, dtype), torch.as_tensor(values).to(dtype).expand(2))


@pytest.mark.parametrize("way", ["add", "write"])
@pytest.mark.parametrize(("values", "dtype"), NOT_INTO.values(), ids=NOT_INTO)
def test_values_that_the_vector_lacks(values, dtype, way):
    with pytest.raises(RankError, match=rf"{way}: the values are torch\.\w+ and the vector {dtype}, which has other"):
        changed(way, values, dtype)
