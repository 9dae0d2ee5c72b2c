"""`hpcdl trace`: one timeline of all ranks for Perfetto, from what a run with --profile wrote."""

import json
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hpcdl.commands import end, say
from hpcdl.files import write_whole

SPANS = "spans"  # the files of `--profile`: spans-RANK.jsonl
STEP, WAIT, MESSAGE, RECEIVED = "step", "wait", "message", "received"
WORK = ("input", "forward", "backward", "weights", "gradients", "optimizer")  # the parts of a step


CATEGORIES = {"weights": "backward", MESSAGE: "messages", WAIT: "waits"}  # the others are called as their spans
TRACKS = {0: "steps", 1: "messages"}
EARLIER = {"X": 0, "b": 1, "s": 2, "f": 3, "e": 4}  # order of events at the same time


class Span(NamedTuple):
    """A rank's activity from `start` to `end` in seconds of its clock.

    A message has a `peer`, `nbytes`, a `kind` and a `pair`, which the sender's span and the receiver's share.
    """

    name: str
    start: float
    end: float
    microbatch: int = -1
    peer: int = -1
    nbytes: int = 0
    kind: str = ""
    pair: str = ""


def to_chrome(spans: Mapping[int, Iterable[Span]]) -> dict[str, Any]:
    """Convert the timeline of all ranks to the Trace Event Format: a process per rank, with a track for messages.

    Times are in microseconds, and events are sorted by them. Work is nested in its step, and waits in the work that
    waited. An arrow goes from the work that sends a message to the wait, or the work, that receives it.
    """
    ranks = {rank: list(rows) for rank, rows in sorted(spans.items())}
    events = [event for rank, rows in ranks.items() for n, span in enumerate(rows) for event in _events(rank, n, span)]
    events += _arrows(ranks)
    events.sort(key=lambda event: (event["ts"], EARLIER[event["ph"]], -event.get("dur", 0.0)))
    return {"traceEvents": [event for rank in ranks for event in _names(rank)] + events, "displayTimeUnit": "ms"}


def _names(rank: int) -> list[dict[str, Any]]:
    common = {"ph": "M", "pid": rank, "ts": 0}
    tracks = [common | {"tid": t, "name": "thread_name", "args": {"name": name}} for t, name in TRACKS.items()]
    return [
        common | {"tid": 0, "name": "process_name", "args": {"name": f"rank {rank}"}},
        common | {"tid": 0, "name": "process_sort_index", "args": {"sort_index": rank}},
        *tracks,
    ]


def _events(rank: int, number: int, span: Span) -> list[dict[str, Any]]:
    common = {"pid": rank, "tid": 0, "cat": CATEGORIES.get(span.name, span.name)}
    start, end = 1e6 * span.start, 1e6 * span.end
    if span.name == RECEIVED:  # only the end of an arrow
        return []
    if span.name != MESSAGE:
        name = span.name if span.microbatch < 0 else f"{span.name} {span.microbatch}"
        return [common | {"ph": "X", "name": name, "ts": start, "dur": end - start}]
    # Messages overlap: each is an asynchronous event, from the call to send until it was sent.
    common |= {"tid": 1, "id": f"{rank}.{number}", "name": f"{span.kind} to rank {span.peer}".strip()}
    arguments = {"peer": span.peer, "bytes": span.nbytes}
    return [common | {"ph": "b", "ts": start, "args": arguments}, common | {"ph": "e", "ts": end}]


def _arrows(ranks: Mapping[int, list[Span]]) -> list[dict[str, Any]]:
    """Return a flow event for both ends of each message that both ranks noted in a step."""
    waits, steps = (
        {rank: sorted((s.start, s.end) for s in rows if s.name == name) for rank, rows in ranks.items()}
        for name in (WAIT, STEP)
    )
    sent, found = _messages(ranks, MESSAGE), []
    for (rank, peer, pair), span in _messages(ranks, RECEIVED).items():
        source = sent.get((peer, rank, pair))
        if source is None:
            continue
        wait = _around(waits[rank], span.end)
        inside = wait is not None and wait[1] >= source.start  # clocks of processes differ a little
        arrived = max(wait[0] if wait and inside else span.end, source.start)
        if not _around(steps[peer], source.start) or not _around(steps[rank], arrived):
            continue
        common = {"cat": "messages", "name": "message", "id": f"{peer}-{rank}:{pair}", "tid": 0}
        found.append(common | {"ph": "s", "pid": peer, "ts": 1e6 * source.start})
        found.append(common | {"ph": "f", "bp": "e", "pid": rank, "ts": 1e6 * arrived})
    return found


def _messages(ranks: Mapping[int, list[Span]], name: str) -> dict[tuple[int, int, str], Span]:
    """Return the spans of a name by rank, peer and pair, without pairs that a restarted run has twice."""
    keys = [((rank, s.peer, s.pair), s) for rank, rows in ranks.items() for s in rows if s.name == name and s.pair]
    times = Counter(key for key, _ in keys)
    return {key: span for key, span in keys if times[key] == 1}


def _around(spans: list[tuple[float, float]], time: float) -> tuple[float, float] | None:
    """Return the last of the spans that begin before `time`, if it has not ended."""
    i = bisect_right(spans, (time, float("inf"))) - 1
    return spans[i] if i >= 0 and time <= spans[i][1] else None


def read(folder: Path) -> dict[int, list[Span]]:
    """Read each rank's spans from a run with --profile; raise ValueError if there are none or unknown lines."""
    found: dict[int, list[Span]] = {}
    for path in sorted(folder.glob(f"{SPANS}-*.jsonl")):
        number = path.stem.removeprefix(f"{SPANS}-")
        if not number.isdecimal():
            continue
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            found[int(number)] = [Span(*span) for line in lines for span in line["spans"]]
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{path} is not what hpcdl train --profile writes; train again into a new folder"
            ) from None
    if not found:
        raise ValueError(
            f"{folder} has no {SPANS}-0.jsonl; hpcdl train --log {shlex.quote(str(folder))} --profile writes it"
        )
    return found


def summary(spans: dict[int, list[Span]]) -> list[str]:
    """Summarise how ranks spent their steps, as shares of the time, and what they sent."""
    total = sum(_seconds(rows, STEP) for rows in spans.values())
    steps = max(sum(span.name == STEP for span in rows) for rows in spans.values())
    lines = [f"{len(spans)} rank{'s' * (len(spans) > 1)}, {steps} step{'s' * (steps != 1)}"]
    shares = {name: sum(_seconds(rows, name) for rows in spans.values()) for name in (*WORK, WAIT)}
    if total:
        said = ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in shares.items() if seconds)
        lines.append(f"of a step: {said} (waits are also part of what waited)")
    sent = [span for rows in spans.values() for span in rows if span.name == MESSAGE]
    return [*lines, f"{len(sent):,} messages of {sum(span.nbytes for span in sent):,} bytes"]


def _seconds(spans: Iterable[Span], name: str) -> float:
    return sum(span.end - span.start for span in spans if span.name == name)


def trace(
    folder: Annotated[Path, typer.Argument(help="The folder that hpcdl train --log FOLDER --profile wrote.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file to write.")] = Path("trace.json"),
) -> None:
    """Make one timeline of all ranks from a run with --profile; open it in ui.perfetto.dev or chrome://tracing."""
    try:
        spans = read(folder)
        write_whole(out, json.dumps(to_chrome(spans)))
    except (ValueError, OSError) as error:
        end(str(error).rstrip("."))
    for line in summary(spans):
        typer.echo(line)
    say(f"Wrote {out}. Open it at https://ui.perfetto.dev")
