"""Where a GPU and where ranks wait, from their traces. Oracle: each µs of the GPU by itself; the ranks' own moments."""

import itertools
from collections.abc import Callable
from functools import partial

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.elements import items
from hpcdl.training import traced

exercise = Exercise("profile", points=20, minutes=20, functions=("stalls", "waits"))

HOST = ("cudaStreamSynchronize", "cudaDeviceSynchronize")  # calls that wait for the GPU
CAUSES = ("input", "communication", "host")
STREAMS = (7, 13)
Stall = tuple[str, int, int]


def is_compute(event: dict) -> bool:
    return event.get("cat") == "kernel" and not event["name"].startswith("nccl")


def is_on(stream: int, event: dict) -> bool:
    return is_compute(event) and event["tid"] == stream


def is_cause(event: dict, cause: str) -> bool:
    name = event["name"]
    return (
        event.get("ph") == "X"
        and {
            "input": name.startswith(traced.INPUT),
            "communication": name.startswith("nccl"),
            "host": name in HOST,
        }[cause]
    )


def covered(events: list[dict], wanted: Callable[[dict], bool]) -> torch.Tensor:
    """For each µs, whether a wanted event is running."""
    timed = [event for event in events if "dur" in event]
    line = torch.zeros(max(event["ts"] + event["dur"] for event in timed) + 1, dtype=torch.bool)
    for event in filter(wanted, timed):
        line[event["ts"] : event["ts"] + event["dur"]] = True
    return line


def gaps(busy: torch.Tensor) -> list[tuple[int, int]]:
    """Begin and end of each gap between the first and the last busy µs."""
    edges = busy.int().diff()
    ends = (edges == -1).nonzero().flatten() + 1
    begins = (edges == 1).nonzero().flatten() + 1
    return [(int(a), int(begins[begins > a][0])) for a in ends if (begins > a).any()]


def longest(events: list[dict], compute: Callable[[dict], bool] = is_compute) -> list[Stall]:
    """All stalls, the longest first."""
    kinds = {cause: covered(events, partial(is_cause, cause=cause)) for cause in CAUSES}
    found = []
    for begin, end in gaps(covered(events, compute)):
        share = {cause: int(line[begin:end].sum()) for cause, line in kinds.items()}
        cause = max(share, key=lambda cause: share[cause]) if any(share.values()) else "other"
        found.append((cause, begin, end - begin))
    return sorted(found, key=lambda stall: -stall[2])


def by_order(events: list[dict]) -> list[tuple[int, int]]:
    """Times between the end of a kernel and the begin of the next, as if no two kernels ran at the same time."""
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if is_compute(e))
    pairs = itertools.pairwise(kernels)
    return sorted(((a[1], b[0] - a[1]) for a, b in pairs if b[0] > a[1]), key=lambda gap: -gap[1])[:3]


def as_listed(events: list[dict]) -> list[tuple[int, int]]:
    """Times without a kernel if the kernels are taken in the order of the list."""
    latest, found = None, []
    for event in filter(is_compute, events):
        begin, end = event["ts"], event["ts"] + event["dur"]
        if latest is not None and begin > latest:
            found.append((latest, begin - latest))
        latest = end if latest is None else max(latest, end)
    return sorted(found, key=lambda gap: -gap[1])[:3]


def short(rng: torch.Generator, blocks: int) -> list[dict]:
    """A trace of some blocks of two kernels, with a stall between each two blocks."""
    times, now, events = torch.randint(30, 90, (blocks, 3), generator=rng).tolist(), 0, []
    for first, second, stall in times:
        for length in (first, second):
            events.append({"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": now, "dur": length})
            now += length
        now += stall
    return events


def trace(rng: torch.Generator, stalls: int) -> list[dict]:
    """A trace whose four longest stalls differ in length: no sentence says which of equals comes first."""
    while True:
        events = traced.device_trace(rng, stalls)
        for event in filter(is_compute, events):  # neither stream alone is the GPU
            event["tid"] = STREAMS[int(torch.randint(2, (), generator=rng))]
        lengths = [length for *_, length in longest(events)[:4]]
        if len(set(lengths)) == len(lengths):
            return events


def one_cause_each(rng: torch.Generator) -> list[list[dict]]:
    """Traces with two stalls: of each cause one that begins before its stall, and one that ends after it."""
    stream, device, other = ({"cat": "cuda_runtime", "name": name} for name in (*HOST, "cudaLaunchKernel"))
    kinds = [traced.KINDS["input"], traced.KINDS["communication"], stream, device, other]
    traces = []
    for kind in kinds:
        events = short(rng, 3)
        for i, (_, begin, length) in enumerate(sorted(longest(events), key=lambda stall: stall[1])):
            half = begin + length // 2
            a, b = (begin - 5, half) if i else (half, begin + length + 5)
            events.append({"ph": "X", **kind, "pid": 0, "tid": 3, "ts": a, "dur": b - a})
        traces.append(events)
    return traces


def found_by(student, events: list[dict]) -> list[Stall]:
    got = student.stalls([dict(event) for event in events])
    checks.that(
        type(got) is list and all(type(stall) in (tuple, list) and len(stall) == 3 for stall in got),
        f"stalls(events) is {show.show(got, 80)}, expected a list of three (cause, begin, length).",
    )
    return [tuple(map(whole, stall)) for stall in got]


def whole(x):
    """Return a float without a fraction as an int: 4.0 µs are 4 µs."""
    return int(x) if type(x) is float and x.is_integer() else x


@exercise.check(points=6)
def the_three_longest_gaps(student, rng):
    "stalls: begin and length of the three longest times in which the GPU does not compute, the longest first."
    for events in (
        *(trace(rng, stalls) for stalls in (6, 3, 8, 2)),
        short(rng, 1)[:1],
        short(rng, 2)[:-1],
    ):
        right = [stall[1:] for stall in longest(events)[:3]]
        without: dict[str, Callable[[dict], bool]] = {
            "All-reduces count as computing here: kernels whose names begin with nccl only communicate.": lambda e: (
                e.get("cat") == "kernel"
            ),
            "Copies count as computing here: only events of the category kernel compute.": lambda e: (
                is_compute(e) or e.get("cat") == "gpu_memcpy"
            ),
            **{
                f"One stream is not the GPU: kernels on all streams compute, not on {one} alone.": partial(is_on, one)
                for one in STREAMS
            },
        }
        told = {said: [s[1:] for s in longest(events, compute)[:3]] for said, compute in without.items()}
        told |= {
            "Kernels overlap: a short one may end while a long one is still running. Remember the latest end so far.": (
                by_order(events)
            ),
            "Kernels are not in the order of their times in a trace: sort them by their begin first.": as_listed(
                events
            ),
            "These are the three shortest, or the shortest first: return the three longest, the longest first.": (
                sorted((stall[1:] for stall in longest(events)), key=lambda gap: gap[1])[:3]
            ),
            "Those are the first three stalls of the trace: return the longest.": sorted(
                stall[1:] for stall in longest(events)
            )[:3],
            "The longest comes first.": right[::-1],
            "These are all stalls: return the three longest.": [stall[1:] for stall in longest(events)],
        }
        got = [stall[1:] for stall in found_by(student, events)]
        told = {said: wrong for said, wrong in told.items() if wrong != right}
        checks.equal(
            got,
            right,
            name=f"begin and length of the stalls in a trace of {len(events)} events",
            mistakes=told,
        )


@exercise.check(points=5, needs="the_three_longest_gaps")
def their_causes(student, rng):
    "stalls: the cause is what covers most of the stall."
    for events in (*(trace(rng, stalls) for stalls in (3, 4, 6, 8)), *one_cause_each(rng)):
        right = longest(events)[:3]
        told = {
            "Add up what covers the stall: one long event may cover less than two short ones.": by_event(
                events, right, lambda e, begin, end: min(end, e["ts"] + e["dur"]) - max(begin, e["ts"]), max
            ),
            "Only the part of an event inside the stall counts.": by_event(
                events, right, lambda e, begin, end: e["dur"], lambda parts: sum(parts)
            ),
            "Count the time, not the events.": by_event(
                events, right, lambda e, begin, end: 1, lambda parts: sum(parts)
            ),
            "Both synchronizations are the host's: cudaStreamSynchronize and cudaDeviceSynchronize.": without(
                events, right, "cudaStreamSynchronize"
            ),
            "The host waits only in the two synchronizations, not in every cuda_runtime call.": [
                "host" if stall[0] == "other" else stall[0] for stall in right
            ],
            "Names *begin* with enumerate(DataLoader): a number follows.": without(events, right, traced.INPUT),
            "A stall that nothing covers has the cause other.": [
                "input" if stall[0] == "other" else stall[0] for stall in right
            ],
        }
        causes, found = [stall[0] for stall in right], found_by(student, events)
        checks.equal(
            [stall[0] for stall in found],
            causes,
            name=f"the causes of the stalls at {', '.join(str(stall[1]) for stall in right)} µs",
            mistakes={said: wrong for said, wrong in told.items() if wrong != causes},
        )
        times = [stall[1:] for stall in right]
        checks.equal([stall[1:] for stall in found], times, name="begin and length of these stalls")


def without(events: list[dict], stalls: list[Stall], beginning: str) -> list[str]:
    """The causes, if events whose names begin like this are overlooked."""
    seen = [event for event in events if not event["name"].startswith(beginning)]
    causes = {begin: cause for cause, begin, _ in longest(seen)}
    return [causes[begin] for _, begin, _ in stalls]


def by_event(events: list[dict], stalls: list[Stall], size: Callable, combined: Callable) -> list[str]:
    """The causes, if each event that touches a stall has a size, and sizes are combined by cause."""
    named = []
    for _, begin, length in stalls:
        end = begin + length
        sizes = {
            cause: [
                size(e, begin, end)
                for e in events
                if is_cause(e, cause) and e["ts"] < end and e["ts"] + e["dur"] > begin
            ]
            for cause in CAUSES
        }
        totals = {cause: combined(parts) for cause, parts in sizes.items() if parts}
        named.append(max(totals, key=lambda cause: totals[cause]) if totals else "other")
    return named


def waited(ready: list[list[list[int]]], since: Callable = lambda ticks, rank: ticks[rank]) -> dict:
    """By (rank, awaited rank): µs from `since` until the last rank has the tensor."""
    found: dict[tuple[int, int], int] = {}
    for ticks in (ticks for step in ready for ticks in step):
        last = ticks.index(max(ticks))
        for rank in range(len(ticks)):
            if rank != last:
                found[rank, last] = found.get((rank, last), 0) + ticks[last] - since(ticks, rank)
    return found


@exercise.check(points=9)
def who_waits_for_whom(student, rng):
    "waits: for each tensor and step, each rank waits from its own request to that of the last rank."
    for ranks, tensors, steps in ((3, 1, 1), (2, 3, 1), (4, 3, 5), (3, 2, 8)):
        ready = traced.random_ready(rng, ranks, tensors, steps)
        got, right = student.waits(traced.horovod_timeline(ready)), waited(ready)
        name = f"waits(the timeline of {ranks} ranks, {items(tensors, 'tensor')}, {items(steps, 'step')})"
        checks.that(
            type(got) is dict and all(type(key) is tuple and len(key) == 2 for key in got),
            f"{name} is {show.show(got, 80)}, expected a dict from (rank, awaited rank) to µs.",
        )
        got = {pair: whole(value) for pair, value in got.items()}
        final = [max((ticks[rank], rank) for step in ready for ticks in step for rank in range(ranks))[1]]
        told = {
            "The pairs are reversed: first the rank that waits, then the rank that it waits for.": {
                (b, a): value for (a, b), value in right.items()
            },
            "Each rank waits from its own request on, not from the first rank's.": waited(
                ready, lambda ticks, _: min(ticks)
            ),
            "The all-reduce itself is no waiting: it begins when the last rank is ready.": waited(
                ready, lambda ticks, rank: ticks[rank] - 40
            ),
            "All steps count: a tensor is requested once in each of them.": waited(ready[-1:]),
            "All tensors count.": waited([[step[0]] for step in ready]),
            "Each tensor has its own last rank.": waited(
                [[[*ticks[: final[0]], max(ticks), *ticks[final[0] + 1 :]] for ticks in step] for step in ready]
            ),
            "The ranks are ints; the names of the requests are strings.": {
                (str(a), str(b)): value for (a, b), value in right.items()
            },
        }
        checks.equal(got, right, name=name, mistakes={said: wrong for said, wrong in told.items() if wrong != right})
