"""Traces of trainings, as Chrome and Perfetto show them: made up, with stalls and slow ranks, or measured.

Times are µs, as in the file format.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

Event = dict[str, Any]
KERNELS = ("ampere_sgemm_128x64_tn", "cudnn_winograd_3x3", "vectorized_elementwise_kernel", "batch_norm_backward")
INPUT = "enumerate(DataLoader)"
KINDS: dict[str, Event] = {
    "input": {"cat": "user_annotation", "name": f"{INPUT}#_MultiProcessingDataLoaderIter.__next__", "tid": 1},
    "communication": {"cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "tid": 20},
    "host": {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "tid": 2},
}
STAND_INS = {"all-reduce": "communication", "synchronize": "host"}  # blocks of record_function


def _between(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high, (), generator=generator))


def _event(kind: str, begin: int, end: int) -> Event:
    return {"ph": "X", **KINDS[kind], "pid": 0, "ts": begin, "dur": end - begin}


def _kernel(begin: int, end: int, stream: int, generator: torch.Generator) -> Event:
    name = KERNELS[_between(0, len(KERNELS), generator)]
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": end - begin}


def device_trace(generator: torch.Generator, stalls: int = 6) -> list[Event]:
    """Return a GPU's trace, its events in random order, with short stalls and `stalls` (1 to 10) long ones.

    One of the long ones has no visible cause. As in real traces, loading, communication and synchronization also happen
    while the GPU computes, before its first kernel and after its last one.
    """
    lengths = (100 + 60 * torch.randperm(10, generator=generator)[:stalls]).tolist()
    gaps = [length + _between(0, 50, generator) for length in lengths]
    gaps += [_between(3, 30, generator) for _ in range(stalls)]
    unknown, now = _between(0, stalls, generator), 900
    caused = sorted((i for i in range(stalls) if i != unknown), key=gaps.__getitem__)
    events: list[Event] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]
    events.append(_event("input", 0, 880))
    for i in torch.randperm(len(gaps), generator=generator).tolist():
        begin, now = now, _busy(events, now, generator)
        events.append({"ph": "i", "name": "[memory]", "pid": 0, "tid": 1, "ts": now, "s": "t"})
        kinds = [list(KINDS)[kind] for kind in torch.randperm(3, generator=generator).tolist()]
        hidden = kinds[2], begin + 10, now - 50
        if i in caused:
            in_parts = caused.index(i) % 2 == 0
            events += [_event(kinds[which], *times) for which, *times in _cause(now, gaps[i], in_parts)]
            hidden = kinds[2], begin + 10, now + gaps[i] // 10 if in_parts else now - 50
        events.append(_event(*hidden))
        now += gaps[i]
    now = _busy(events, now, generator)
    events.append(_event("host", now + 5, now + 900))
    return [events[i] for i in torch.randperm(len(events), generator=generator).tolist()]


def _busy(events: list[Event], begin: int, generator: torch.Generator) -> int:
    """Add kernels from `begin` without a gap, and others on a second stream at the same time; return their end."""
    middle = begin + _between(350, 700, generator)
    end = middle + _between(350, 700, generator)
    events += [_kernel(begin, middle, 7, generator), _kernel(middle, end, 7, generator)]
    events += [_kernel(begin + 20, begin + 90, 13, generator), _kernel(middle - 50, middle + 80, 13, generator)]
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7}
    events.append({**copy, "ts": end + 1, "dur": 1})
    return end


def _cause(begin: int, length: int, in_parts: bool) -> list[tuple[int, int, int]]:
    """Return (kind, begin, end) of what happens in a stall: 0 is the cause, and 1 another kind.

    The cause comes in two parts, each shorter than the other kind's event, or in one part, next to two of the other.
    """
    at = lambda percent: begin + length * percent // 100  # noqa: E731
    if in_parts:
        return [(0, begin, at(36)), (0, at(70), begin + length), (1, at(30), at(75))]
    return [(0, at(20), at(80)), (1, at(10), at(25)), (1, at(80), at(95))]


def horovod_timeline(ready: list[list[list[int]]]) -> list[Event]:
    """Return Horovod's timeline, as rank 0 writes it: `ready[step][tensor][rank]` is when a rank has a gradient.

    Each tensor is a process of the trace. NEGOTIATE_ALLREDUCE lasts from the first rank's request to the last one's; a
    request is an event without length that has the rank's number as its name. ALLREDUCE follows.
    """
    events: list[Event] = []
    for pid, ticks in ((pid, ticks) for step in ready for pid, ticks in enumerate(step)):
        here, last = {"pid": pid, "tid": 0}, max(ticks)
        events.append({"ph": "B", "name": "NEGOTIATE_ALLREDUCE", **here, "ts": min(ticks)})
        events += [{"ph": "X", "name": str(rank), **here, "ts": tick, "dur": 0} for rank, tick in enumerate(ticks)]
        events.append({"ph": "E", **here, "ts": last})
        events.append({"ph": "B", "name": "ALLREDUCE", **here, "ts": last + 2})
        events.append({"ph": "E", **here, "ts": last + 40})
    events.sort(key=lambda event: event["ts"])  # stable: a phase begins before its first request
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"grad/{pid}"}} for pid in range(len(ready[0]))
    ]
    return [*names, *events]


def random_ready(generator: torch.Generator, ranks: int, tensors: int, steps: int) -> list[list[list[int]]]:
    """Return random moments for `horovod_timeline`, with one slow rank; no two ranks have a tensor at the same time."""
    slow, found = _between(0, ranks, generator), []
    for step in range(steps):
        row = []
        for tensor in range(tensors):
            begin = 1000 * (step + 1) + 60 * tensor
            ticks = (begin + 3 * torch.randperm(40, generator=generator)[:ranks]).tolist()
            ticks[slow] += 1 + 60 * _between(0, 3, generator)
            row.append(ticks)
        found.append(row)
    return found


def profiled(run: Callable[[], Any]) -> list[Event]:
    """Call `run` under torch.profiler; return its trace, with this thread's operators as a device's kernels.

    Operators that load data do not count. `record_function` blocks called "all-reduce" and "synchronize" become a
    kernel of NCCL and a call of CUDA.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler = profile(activities=[ProfilerActivity.CPU])
        with _without_stderr():
            profiler.start()
        try:
            run()
        finally:
            with _without_stderr():
                profiler.stop()
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    events = [event for event in events if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")]
    causes = [e for e in events if e["name"] in STAND_INS or e["name"].startswith(INPUT)]
    start = min((event["ts"] for event in events), default=0.0)
    found = []
    for event in events:
        moved = {**event, "ts": event["ts"] - start}
        if event["name"] in STAND_INS:
            found.append({**moved, **KINDS[STAND_INS[event["name"]]]})
        elif event["name"].startswith(INPUT):
            found.append(moved)
        elif event["cat"] == "cpu_op" and not any(_inside(event, cause) for cause in causes):
            found.append({**moved, "cat": "kernel"})
    return found


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Drop what C++ code writes to stderr: torch's profiler notes its start and its stop there."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _inside(event: Event, other: Event) -> bool:
    return other["ts"] <= event["ts"] and event["ts"] + event["dur"] <= other["ts"] + other["dur"]
