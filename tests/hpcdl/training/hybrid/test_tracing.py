"""The timeline of a run: its structure for Perfetto, and sums that agree with the run's own records."""

import json
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from hpcdl.cli import app
from hpcdl.training import Configuration
from hpcdl.training.hybrid.seconds import step_seconds
from hpcdl.training.hybrid.tracing import MESSAGE, RECEIVED, STEP, WAIT, WORK, Span, read, to_chrome
from hpcdl.training.hybrid.work import machine_named

TINY = 1e-3  # microseconds: rounding of sums
MACHINE = "A100 (DGX)"
OPTIONS = [
    "--model",
    "mlp",
    "--mesh",
    "data=2,pipeline=2",
    "--microbatches",
    "2",
    "--schedule",
    "zb_h1",
    "--batch",
    "8",
]


def invoke(*arguments: str):
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The log of two steps on four simulated ranks."""
    log = tmp_path_factory.mktemp("run") / "log"
    more = ["--simulate", "4", "--steps", "2", "--machine", MACHINE, "--log", str(log), "--profile"]
    ended = invoke("train", *OPTIONS, *more)
    assert ended.exit_code == 0, ended.output
    return log


def check_sums(folder):
    """Steps, waits and bytes of the timeline are those of the records."""
    for rank, spans in read(folder).items():
        records = [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]
        for name, field in ((STEP, "seconds"), (WAIT, "waited")):
            total = sum(span.end - span.start for span in spans if span.name == name)
            assert total == pytest.approx(sum(record[field] for record in records), rel=1e-6)
        messages = [span.nbytes for span in spans if span.name == MESSAGE]
        assert len(messages) == sum(record["messages"] for record in records)
        assert sum(messages) == sum(record["bytes_sent"] for record in records)


def check_structure(folder):
    """Work fills its step without overlap, and each wait is inside a piece of work."""
    for spans in read(folder).values():
        steps = [span for span in spans if span.name == STEP]
        work = sorted((span for span in spans if span.name in WORK), key=lambda span: (span.start, span.end))
        assert all(before.end <= after.start for before, after in pairwise(work))
        assert all(any(step.start <= span.start and span.end <= step.end for step in steps) for span in spans)
        for name, count in (("input", 1), ("forward", 2), ("backward", 2), ("gradients", 1), ("optimizer", 1)):
            assert sum(span.name == name for span in spans) == count * len(steps)


def check_format(events: list[dict]) -> int:
    """Hold `events` against the Trace Event Format; return the number of arrows.

    Each event has its fields; tracks have names; events are in order; slices of a track nest; an asynchronous event
    ends after it begins; both ends of an arrow are inside a slice, the later one on another rank.
    """
    for event in events:
        assert {"ph", "pid", "tid", "ts", "name"} <= set(event)
        assert event["ts"] >= 0
    meta, events = ([e for e in events if (e["ph"] == "M") == named] for named in (True, False))
    tracks = {(event["pid"], event["tid"]) for event in meta if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events} == tracks
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    assert {"input", "forward", "backward", "messages", "waits"} <= {event["cat"] for event in events}
    return check_arrows(events, check_slices(events))


def check_slices(events: list[dict]) -> dict[tuple, list[tuple]]:
    """Return the (start, end) of each track's slices, which must nest."""
    slices: dict[tuple, list[tuple]] = {}
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for found in slices.values():
        around: list[tuple] = []
        for start, end in found:
            while around and start >= around[-1][1] - TINY:
                around.pop()
            assert not around or end <= around[-1][1] + TINY
            around.append((start, end))
    return slices


def check_arrows(events: list[dict], slices: dict[tuple, list[tuple]]) -> int:
    """Return the number of arrows, whose ends, like those of asynchronous events, must belong together."""
    ends: dict[tuple, list[dict]] = {}
    for event in events:
        if event["ph"] != "X":
            ends.setdefault((event["ph"] in "be", event["cat"], event["id"]), []).append(event)
    for (is_async, _, _), (first, last) in ends.items():
        assert first["ph"] + last["ph"] == ("be" if is_async else "sf")
        assert first["name"] == last["name"], "Perfetto pairs ends by category, id and name"
        assert (first["pid"] == last["pid"]) == is_async
        for event in () if is_async else (first, last):
            assert any(start <= event["ts"] <= end + TINY for start, end in slices[event["pid"], event["tid"]])
        assert is_async or last["bp"] == "e"
    return sum(not is_async for is_async, _, _ in ends)


def test_sums_agree_with_the_run(folder):
    check_sums(folder)


def test_work_fills_its_step(folder):
    check_structure(folder)
    assert all(sum(span.name == "weights" for span in spans) == 4 for spans in read(folder).values())


def test_simulated_computing_takes_what_is_predicted(folder):
    """A stage has half of the layers; the last one a smaller one, and both together all of the model's seconds."""
    configuration = Configuration(model="mlp", mesh=(2, 2, 1, 1), microbatches=2, schedule="zb_h1", batch=8)
    step, spans = step_seconds(configuration, machine_named(MACHINE)), read(folder)
    for name, expected in (("forward", step.forward), ("backward", step.backward / 2), ("weights", step.backward / 2)):
        both = sum(s.end - s.start for rank in (0, 2) for s in spans[rank] if s.name == name) / 2  # of two steps
        assert both == pytest.approx(2 * expected, rel=1e-6)


def test_perfetto_gets_a_process_per_rank(folder, tmp_path):
    out = tmp_path / "trace.json"
    ended = invoke("trace", str(folder), "--out", str(out))
    assert ended.exit_code == 0, ended.output
    assert ended.output.startswith("4 ranks, 2 steps\nof a step: ")
    events = json.loads(out.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == [f"rank {r}" for r in range(4)]
    assert {event["ph"] for event in events} == {"M", "X", "b", "e", "s", "f"}
    begun, ended = ([event["id"] for event in events if event["ph"] == phase] for phase in "be")
    assert sorted(begun) == sorted(ended)
    assert len(set(begun)) == len(begun)
    assert check_format(events) == sum(span.name == MESSAGE for spans in read(folder).values() for span in spans)


def test_times_are_microseconds():
    rows = to_chrome({3: [Span("forward", 0.5, 1.0, 2), Span(MESSAGE, 0.25, 1.0, peer=1, nbytes=8)]})["traceEvents"]
    assert {"pid": 3, "tid": 0, "cat": "forward", "ph": "X", "name": "forward 2", "ts": 5e5, "dur": 5e5} in rows
    assert next(row for row in rows if row["ph"] == "b")["args"] == {"peer": 1, "bytes": 8}


def spans_of(late: float = 0.0, number: str = "1"):
    """Rank 0 sends from its step, and rank 1, whose clock may be `late`, waits for it in its own."""
    step = Span(STEP, 0.0, 9.0)
    received = Span(RECEIVED, 1.0, 4.0 - late, peer=0, nbytes=8, kind="gradients", pair=f".0.{number}")
    return {
        0: [step, Span(MESSAGE, 3.0, 4.0, peer=1, nbytes=8, kind="gradients", pair=".0.1")],
        1: [step, Span(WAIT, 2.0, 4.0 - late), received],
    }


@pytest.mark.parametrize("late", [0.0, 2.0])
def test_an_arrow_ends_after_it_begins(late):
    """In the wait for the message; if the clocks disagree, at the time when it was sent."""
    arrow = [row for row in to_chrome(spans_of(late))["traceEvents"] if row["ph"] in "sf"]
    assert [(row["ph"], row["pid"], row["ts"]) for row in arrow] == [("s", 0, 3e6), ("f", 1, 3e6)]


def test_an_arrow_needs_both_ends():
    other = to_chrome(spans_of(number="2"))["traceEvents"]
    repeated = spans_of()
    repeated[0] += repeated[0]  # a run that was killed and started again
    for events in (other, to_chrome(repeated)["traceEvents"]):
        assert not {"s", "f"} & {row["ph"] for row in events}
    assert next(row for row in other if row["ph"] == "b")["name"] == "gradients to rank 1"


@pytest.mark.labs  # eight ranks
def test_three_dimensions_make_one_timeline(tmp_path):
    options = ["--model", "gpt", "--mesh", "data=2,pipeline=2,tensor=2", "--microbatches", "2", "--sharding", "2"]
    more = ["--simulate", "8", "--machine", MACHINE, "--steps", "2", "--log", str(tmp_path / "log"), "--profile"]
    ended = invoke("train", *options, *more)
    assert ended.exit_code == 0, ended.output
    check_sums(tmp_path / "log")
    spans = read(tmp_path / "log")
    kinds = {span.kind for rows in spans.values() for span in rows if span.name == MESSAGE}
    assert kinds == {"gradients", "parameters", "activations", "tensor", "control"}
    messages = sum(span.name == MESSAGE for rows in spans.values() for span in rows)
    assert check_format(to_chrome(spans)["traceEvents"]) == messages


@pytest.mark.parametrize(
    ("text", "said"), [(None, "has no spans-0.jsonl; hpcdl train --log"), ("{}\n", "is not what hpcdl train --profile")]
)
def test_a_folder_without_a_timeline_is_a_sentence(tmp_path, text, said):
    if text:
        (tmp_path / "spans-0.jsonl").write_text(text)
    ended = invoke("trace", str(tmp_path), "--out", str(tmp_path / "trace.json"))
    assert ended.exit_code == 2
    assert said in ended.output.replace("\n", " ")
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.labs  # starts processes
@pytest.mark.mpi
def test_mpi_ranks_make_one_timeline(mpiexec, tmp_path):
    log = tmp_path / "log"
    code, printed = mpiexec(4, "-m", "hpcdl", "train", *OPTIONS, "--steps", "2", "--log", str(log), "--profile")
    assert code == 0, printed
    check_sums(log)
    check_structure(log)
    assert check_format(to_chrome(read(log))["traceEvents"])
