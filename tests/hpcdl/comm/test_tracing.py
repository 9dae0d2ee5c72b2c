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


def test_traced_ring_talks_to_its_neighbours():
    for rank, (x, trace) in enumerate(simulate(traced_ring, 4, alpha=1.0).results):
        assert x.tolist() == [6.0] * 8
        sends = [event for event in trace if event.op == "send"]
        receives = [event for event in trace if event.op == "recv"]
        assert [(event.peer, event.nbytes) for event in sends] == [((rank + 1) % 4, 8)] * 6
        assert [event.peer for event in receives] == [(rank - 1) % 4] * 6
        assert [event.end for event in sends] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert sum(event.nbytes for event in trace if event.op == "accumulate") == 3 * 8


def test_collectives_and_waits_are_recorded():
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


def test_a_trace_asks_the_machine_for_what_would_run_without_it():
    def rank(comm, wrap):
        asked = []
        for name in ("_sendrecv", "_sendrecv_add", "_sendrecv_add_back"):
            run = getattr(comm, name)
            setattr(comm, name, lambda *what, name=name, run=run: asked.append(name) or run(*what))
        x, out, scratch, right, left = torch.ones(4), torch.ones(4), torch.empty(4), 1 - comm.rank, 1 - comm.rank
        machine = wrap(comm)
        machine.sendrecv(x, right, out, left)
        machine.sendrecv_add(x, right, out, left, scratch, 0.5)
        machine.sendrecv_add(x, right, out, left, scratch, 0.5, back=True)
        return asked, out.tolist(), x.tolist()

    assert simulate(rank, 2, TracingComm).results == simulate(rank, 2, lambda comm: comm).results


def test_a_sum_on_the_way_is_traced_as_what_was_sent_received_and_added():
    def rank(comm):
        traced = TracingComm(comm)
        x, out = torch.ones(4), torch.ones(4)
        traced.sendrecv_add(x, 1 - comm.rank, out, 1 - comm.rank, torch.empty(4), tag=3)
        traced.sendrecv_add(x, 1 - comm.rank, out, 1 - comm.rank, torch.empty(4), back=True)
        return [(event.op, event.peer, event.nbytes, event.tag) for event in traced.trace]

    for me, events in enumerate(simulate(rank, 2, alpha=1.0).results):
        other = 1 - me
        once = [("send", other, 16), ("recv", other, 16), ("accumulate", -1, 16)]
        back = [("send", other, 16), ("recv", other, 16)]
        tags = [3, 3, 0, 0, 0, 0, 0, 0]
        assert events == [(*event, tag) for event, tag in zip(once + once + back, tags, strict=True)]
