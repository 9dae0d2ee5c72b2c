"""The trace: every operation with its rank, peer, bytes and time, and the same algorithm untouched."""

import json
import pickle

import torch

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import Event, Trace, TracingComm, simulate


def traced_ring(comm):
    comm = TracingComm(comm)
    x = torch.full((8,), float(comm.rank))
    ring_all_reduce(x, comm)
    return x, comm.trace


def test_a_traced_ring_sends_to_the_next_rank_and_receives_from_the_one_before():
    for rank, (x, trace) in enumerate(simulate(traced_ring, 4, alpha=1.0).results):
        assert x.tolist() == [6.0] * 8
        sends = [event for event in trace if event.op == "send"]
        receives = [event for event in trace if event.op == "recv"]
        assert [(event.peer, event.nbytes) for event in sends] == [((rank + 1) % 4, 8)] * 6
        assert [event.peer for event in receives] == [(rank - 1) % 4] * 6
        assert [event.end for event in sends] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert sum(event.nbytes for event in trace if event.op == "accumulate") == 3 * 8


def test_collectives_work_and_waits_of_requests_are_recorded_when_they_end():
    def rank(comm):
        comm = TracingComm(comm)
        comm.broadcast(torch.zeros(2), root=1)
        comm.compute(2.0)
        request = comm.irecv(torch.zeros(2), 0) if comm.rank else comm.isend(torch.zeros(2), 1)
        comm.compute(5.0)
        request.wait()
        comm.all_reduce(torch.zeros(3))
        comm.barrier()
        return comm.trace

    trace = simulate(rank, 2).results[0]
    assert [event.op for event in trace] == ["broadcast", "compute", "compute", "send", "all_reduce", "barrier"]
    assert trace[0].peer == 1
    assert trace[3] == Event(start=2.0, end=7.0, rank=0, op="send", peer=1, nbytes=8, tag=0)


def test_a_trace_is_a_sequence_that_can_be_compared_pickled_and_saved():
    trace = simulate(traced_ring, 3).trace
    assert pickle.loads(pickle.dumps(trace)) == trace
    assert Trace(trace[:4]) == trace[:4] != trace
    assert json.loads(trace.to_json())[0] == trace[0]._asdict()


def test_the_chrome_timeline_has_one_row_per_rank_in_microseconds():
    rows = json.loads(simulate(traced_ring, 3, alpha=0.5).trace.to_chrome())["traceEvents"]
    assert [row["args"]["name"] for row in rows if row["ph"] == "M"] == ["rank 0", "rank 1", "rank 2"]
    first = next(row for row in rows if row["name"] == "send")
    assert (first["ts"], first["dur"]) == (0.0, 500_000.0)
