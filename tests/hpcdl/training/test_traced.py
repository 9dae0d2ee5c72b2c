"""Made-up and measured traces."""

import time
from itertools import pairwise

import pytest
import torch
from torch.profiler import record_function
from torch.utils.data import DataLoader

from hpcdl.training import traced


def spans(events, wanted) -> list[tuple[int, int]]:
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and wanted(e))


@pytest.mark.parametrize("seed", range(10))
def test_events_of_one_cause_do_not_overlap(seed):
    events = traced.device_trace(torch.Generator().manual_seed(seed), stalls=10)
    for kind in traced.KINDS.values():
        mine = spans(events, lambda e, kind=kind: e["name"] == kind["name"])
        assert all(a[1] <= b[0] for a, b in pairwise(mine))
    assert sum(e["name"] in [kind["name"] for kind in traced.KINDS.values()] for e in events) > 40


def test_a_trace_is_drawn_from_the_generator_alone():
    first, second = (traced.device_trace(torch.Generator().manual_seed(5)) for _ in range(2))
    assert first == second != traced.device_trace(torch.Generator().manual_seed(6))


def test_ranks_are_ready_one_after_another():
    ready = traced.random_ready(torch.Generator().manual_seed(0), ranks=4, tensors=3, steps=20)
    assert all(len(set(ticks)) == 4 for step in ready for ticks in step)
    events = traced.horovod_timeline(ready)
    phases = [[e["ph"] for e in events if e["pid"] == tensor] for tensor in range(3)]
    assert phases == [["M", *["B", "X", "X", "X", "X", "E", "B", "E"] * 20]] * 3


def test_a_profile_has_operators_and_causes(capfd):
    numbers = torch.ones(4, 2)

    def run():
        for x in DataLoader(numbers, batch_size=2):
            (x @ x.T).sum()
        with record_function("synchronize"):
            time.sleep(0.001)
            torch.ones(2)  # inside the wait: it does not count as computing

    events = traced.profiled(run)
    names = [e["name"] for e in events if e.get("cat") == "kernel"]
    assert "aten::mm" in names or "aten::matmul" in names
    assert "aten::ones" not in names
    assert "aten::stack" not in names  # which made the batch
    assert any(e["name"].startswith(traced.INPUT) for e in events)
    assert [e["dur"] > 1000 for e in events if e["name"] == "cudaStreamSynchronize"] == [True]
    assert min(e["ts"] for e in events) == 0
    assert capfd.readouterr().err == ""
