"""Wrong answers to `stalls` and `waits`."""

from functools import partial

from autograder.bank.slips import slip

slip = partial(slip, "machines.profile")
GAPS = "the_three_longest_gaps their_causes"
CAUSES, WAITS = "their_causes", "who_waits_for_whom"
KERNEL, END = '        if kind == "kernel":\n', "latest = max(latest, end)"
LONGEST = "sorted(found, key=lambda stall: -stall[2])[:3]"
SHARES = """shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }"""
WAITED = "found[rank, last] = found.get((rank, last), 0)"


def shared(share: str) -> tuple[str, str]:
    """Return the change to another share of a cause in a stall."""
    return SHARES, f"shares = {{row: {share} for row, parts in times.items()}}"


slip(
    "an all-reduce taken for work",
    KERNEL,
    KERNEL + '            times["compute"].append((event["ts"], event["ts"] + event["dur"]))\n',
    fails=GAPS,
    says="All-reduces count as computing",
)
slip(
    "a copy taken for work",
    KERNEL,
    '        if kind == "gpu_memcpy":\n            row = "compute"\n' + KERNEL.replace("if", "elif"),
    fails=GAPS,
    says="Copies count as computing",
)
slip("kernels that overlap taken one after another", END, "latest = end", fails=GAPS, says="Remember the latest end")
slip("the first three stalls", LONGEST, "found[:3]", fails=GAPS, says="return the longest")
slip("the longest stall last", LONGEST, LONGEST + "[::-1]", fails=GAPS, says="The longest comes first")
slip(
    "the shortest stalls",
    LONGEST,
    "sorted(found, key=lambda stall: stall[2])[:3]",
    fails=GAPS,
    says="These are the three shortest",
)
slip(
    "kernels as the trace lists them",
    'sorted(times.pop("compute"))',
    'times.pop("compute")',
    fails=GAPS,
    says="sort them by their begin first",
)
slip("all stalls", LONGEST, LONGEST.removesuffix("[:3]"), fails=GAPS, says="return the three longest")
slip(
    "the longest event as the cause",
    *shared("max((max(0, min(begin, b) - max(latest, a)) for a, b in parts), default=0)"),
    fails=CAUSES,
    says="one long event may cover less",
)
slip(
    "events that touch a stall, at full length",
    *shared("sum(b - a for a, b in parts if a < begin and b > latest)"),
    fails=CAUSES,
    says="Only the part of an event inside",
)
slip("events counted", *shared("sum(a < begin and b > latest for a, b in parts)"), fails=CAUSES, says="Count the time")
slip("no other causes", ' if any(shares.values()) else "other"', "", fails=CAUSES, says="has the cause other")
slip("pairs reversed", WAITED, WAITED.replace("rank, last", "last, rank"), fails=WAITS, says="The pairs are reversed")
slip(
    "waiting from the first request on",
    "+ end - tick",
    "+ end - min(ticks)[0]",
    fails=WAITS,
    says="from its own request on",
)
slip(
    "the all-reduce counted as waiting", "+ end - tick", "+ end + 40 - tick", fails=WAITS, says="The all-reduce itself"
)
slip(
    "one tensor only",
    "tensor in requests:",
    "tensor in requests and tensor == 0:",
    fails=WAITS,
    says="All tensors count",
)
slip("ranks as strings", 'int(event["name"])', 'event["name"]', fails=WAITS, says="The ranks are ints")
slip(
    "cudaStreamSynchronize only",
    'name in ("cudaStreamSynchronize", "cudaDeviceSynchronize")',
    'name == "cudaStreamSynchronize"',
    fails=CAUSES,
    says="is 'other', expected 'host'",
)
slip(
    "only events within a stall",
    *shared("sum(b - a for a, b in parts if a >= latest and b <= begin)"),
    fails=CAUSES,
    says="is 'other', expected",
)
slip(
    "events taken in the order of the trace",
    'sorted(times.pop("compute"))',
    'times.pop("compute")',
    fails=GAPS,
    says="begin and length of the stalls",
)
slip("a category for every event", 'event.get("cat")', 'event["cat"]', fails=GAPS, says="'cat'")
slip("pairs that never wait", "if rank != last:", "if True:", fails=WAITS, says="waits(the timeline of")
slip(
    "the last request of each pair",
    "found.get((rank, last), 0) + end - tick",
    "end - tick",
    fails=WAITS,
    says="waits(the timeline of",
)


SYNC = 'name in ("cudaStreamSynchronize", "cudaDeviceSynchronize")'
INPUT = 'name.startswith("enumerate(DataLoader)")'

for mistake, *change, says in (
    ("one synchronization only", SYNC, 'name == "cudaDeviceSynchronize"', "Both synchronizations are the host's"),
    ("every call of the runtime waits", SYNC, 'kind == "cuda_runtime"', "not in every cuda_runtime call"),
    ("the loader's name without its number", INPUT, INPUT.replace(".startswith(", " == ("), "a number follows"),
):
    slip(mistake, *change, fails="their_causes", says=says)
slip(
    "no lengths where causes are watched",
    LONGEST,
    f"[(cause, begin, length * (len(events) != 8)) for cause, begin, length in {LONGEST}]",
    fails=CAUSES,
    says="begin and length of these stalls",
)
slip(
    "kernels of stream 7 alone",
    'if kind == "kernel":',
    'if kind == "kernel" and (event["tid"] == 7 or name.startswith("nccl")):',
    fails=GAPS,
    says="not on 7 alone",
)
