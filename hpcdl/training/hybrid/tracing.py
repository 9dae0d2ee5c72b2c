"""`hpcdl trace`: one timeline of all ranks for Perfetto, from what a run with --profile wrote."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hpcdl.commands import end, say
from hpcdl.files import write_whole

SPANS = "spans"  # the files of `--profile`: spans-RANK.jsonl
STEP, WAIT, MESSAGE = "step", "wait", "message"
WORK = ("input", "forward", "backward", "weights", "gradients", "optimizer")  # the parts of a step


class Span(NamedTuple):
    """A rank's activity from `start` to `end` in seconds of its clock; a message has a `peer` and `nbytes`."""

    name: str
    start: float
    end: float
    microbatch: int = -1
    peer: int = -1
    nbytes: int = 0


def to_chrome(spans: Mapping[int, Iterable[Span]]) -> dict[str, Any]:
    """Convert the timeline of all ranks for Perfetto: a process per rank, with messages on separate tracks.

    Times are in microseconds. Work is nested in its step, and waits in the work that waited.
    """
    events: list[dict[str, Any]] = []
    for rank, rows in sorted(spans.items()):
        events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"rank {rank}"}})
        for number, span in enumerate(sorted(rows, key=lambda span: (span.start, -span.end))):
            events += _events(rank, number, span)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(rank: int, number: int, span: Span) -> list[dict[str, Any]]:
    common = {"pid": rank, "tid": 0, "cat": span.name}
    start, end = 1e6 * span.start, 1e6 * span.end
    if span.name != MESSAGE:
        name = span.name if span.microbatch < 0 else f"{span.name} {span.microbatch}"
        return [common | {"ph": "X", "name": name, "ts": start, "dur": end - start}]
    # Messages overlap: each is an asynchronous event, from the call to send until it was sent.
    common |= {"id": f"{rank}.{number}", "name": f"to rank {span.peer}"}
    arguments = {"peer": span.peer, "bytes": span.nbytes}
    return [common | {"ph": "b", "ts": start, "args": arguments}, common | {"ph": "e", "ts": end}]


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
        raise ValueError(f"{folder} has no {SPANS}-0.jsonl; hpcdl train --log {folder} --profile writes it")
    return found


def summary(spans: dict[int, list[Span]]) -> list[str]:
    """Summarise how ranks spent their steps, as shares of the time, and what they sent."""
    total = sum(_seconds(rows, STEP) for rows in spans.values())
    steps = max(sum(span.name == STEP for span in rows) for rows in spans.values())
    lines = [f"{len(spans)} rank{'s' * (len(spans) > 1)}, {steps} step{'s' * (steps != 1)}"]
    shares = {name: sum(_seconds(rows, name) for rows in spans.values()) for name in (*WORK, WAIT)}
    if total:
        said = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in shares.items() if seconds)
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
