"""What a rank does when: spans of a step, waits and messages; and `hpcdl trace`, which makes one timeline of all ranks.

On simulated ranks computing takes no virtual time by itself. With a machine, each span takes what the machine's peak
says for its operations.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.commands import end, say
from hpcdl.cost.machines import Machine
from hpcdl.files import write_whole
from hpcdl.training.hybrid.metering import MeteredComm

SPANS = "spans"  # the files of `--profile`: spans-RANK.jsonl
STEP, WAIT, MESSAGE = "step", "wait", "message"
WORK = ("input", "forward", "backward", "weights", "gradients", "optimizer")  # what a step is made of


class Span(NamedTuple):
    """What a rank did from `start` to `end`, seconds of its clock; a message has a `peer` and `nbytes`."""

    name: str
    start: float
    end: float
    microbatch: int = -1
    peer: int = -1
    nbytes: int = 0


class Untimed:
    """No timeline: nothing is noted, and no virtual time passes."""

    def span(self, name: str, samples: int = 0, microbatch: int = -1, nbytes: float = 0.0) -> AbstractContextManager:
        return nullcontext()

    def chunks(self, chunks: list) -> list:
        return chunks

    def note(self, name: str, start: float, end: float, **more: int) -> None:
        """Nothing is noted."""

    def take(self) -> list[Span]:
        return []


class Timeline(Untimed):
    """The spans of a rank since the last `take`; every rank makes one at the same time.

    `flops` are the operations of the rank's chunks, of one sample forward. On `machine` they take virtual time, where
    there is any.
    """

    def __init__(self, comm: MeteredComm, flops: list[float], machine: Machine | None, precision: str, whole: bool):
        recursive_doubling_all_reduce(torch.zeros(1, device=comm.devices[0]), comm)  # so that clocks begin together
        self.spans: list[Span] = []
        self._comm, self._flops, self._whole, self._origin = comm, flops, whole, comm.clock()
        usual = machine.usual() if machine else None
        self._device = usual.device(precision) if usual and precision in usual.peaks else None
        comm.meter.note = self.note

    def span(self, name: str, samples: int = 0, microbatch: int = -1, nbytes: float = 0.0) -> AbstractContextManager:
        """What is done inside: `samples` through the rank's chunks forward, `nbytes` of memory."""
        return self.timed(name, samples * sum(self._flops), nbytes, microbatch)

    @contextmanager
    def timed(self, name: str, flops: float, nbytes: float = 0.0, microbatch: int = -1) -> Iterator[None]:
        """What is done inside takes the time of so many operations and bytes, if time is virtual."""
        start = self._comm.clock()
        yield
        if self._device:
            self._comm.compute(max(flops / self._device.peak, nbytes / self._device.bandwidth))
        self.note(name, start, self._comm.clock(), microbatch=microbatch)

    def chunks(self, chunks: list) -> list:
        """A pipeline's chunks whose ops are noted."""
        return [TimedChunk(each, self, flops, self._whole) for each, flops in zip(chunks, self._flops, strict=True)]

    def note(self, name: str, start: float, end: float, **more: int) -> None:
        """Add a span."""
        self.spans.append(Span(name, start - self._origin, end - self._origin, **more))

    def take(self) -> list[Span]:
        """The spans since the last call."""
        taken, self.spans = self.spans, []
        return taken


class TimedChunk:
    """A chunk of a pipeline whose F, B and W are spans; `flops` are those of its forward pass, of a sample.

    `whole` says that B is the whole backward pass, also where a schedule has W apart.
    """

    def __init__(self, chunk: Any, timeline: Timeline, flops: float, whole: bool):
        self.inner, self.module, self.rows_first = chunk, chunk.module, chunk.rows_first
        self._timeline, self._flops, self._whole = timeline, flops, whole
        self._rows: dict[int, int] = {}

    def forward(self, k: int, x: Any) -> Any:
        self._rows[k] = len(x)
        return self._timed("forward", 1, k, self.inner.forward, k, x)

    def backward(self, k: int, dy: Any) -> Any:
        return self._timed("backward", 2, k, self.inner.backward, k, dy)

    def backward_input(self, k: int, dy: Any) -> Any:
        return self._timed("backward", 1 + self._whole, k, self.inner.backward_input, k, dy)

    def backward_weight(self, k: int) -> None:
        self._timed("weights", 1 - self._whole, k, self.inner.backward_weight, k)

    def _timed(self, name: str, times: int, k: int, f: Callable, *arguments: Any) -> Any:
        with self._timeline.timed(name, times * self._flops * self._rows[k], microbatch=k):
            return f(*arguments)


# -- hpcdl trace -------------------------------------------------------------------------------------------------------


def to_chrome(spans: dict[int, Iterable[Span]]) -> dict[str, Any]:
    """The timeline of all ranks for Perfetto: a process per rank, whose messages are on tracks of their own.

    Times are in microseconds. Work is nested in its step, and a wait in the work that waited.
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
    # Messages overlap: each is asynchronous, from when it was given to send to when it had gone.
    common |= {"id": f"{rank}.{number}", "name": f"to rank {span.peer}"}
    arguments = {"peer": span.peer, "bytes": span.nbytes}
    return [common | {"ph": "b", "ts": start, "args": arguments}, common | {"ph": "e", "ts": end}]


def read(folder: Path) -> dict[int, list[Span]]:
    """The spans of each rank that a run with --profile has written; ValueError where there are none or other lines."""
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
    """What ranks did with their steps, in shares of the time, and what they sent."""
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
    """Make one timeline of all ranks from a run with --profile, which ui.perfetto.dev and chrome://tracing open."""
    try:
        spans = read(folder)
        write_whole(out, json.dumps(to_chrome(spans)))
    except (ValueError, OSError) as error:
        end(str(error).rstrip("."))
    for line in summary(spans):
        typer.echo(line)
    say(f"Wrote {out}. Open it at https://ui.perfetto.dev")
