"""Grading: our submissions per second beside nbgrader's and otter's, and what the walls, loops and deadlocks cost.

    python -m benchmarks grading                     # minutes; prints a table, writes benchmarks/results/grading.json
    python -m benchmarks grading --only peers        # one part: peers, lanes, walls, failures
    python -m benchmarks grading --quick             # to see that it works, not to be quoted

All grade the same notebook of five exercises by the same assertions, in turns that rotate, and must agree on the
scores. otter-grader runs in an environment of its own, which is made in artifacts/peers where --otter names none.
"""

import contextlib
import json
import statistics
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Annotated, Any

import nbformat
import torch
import typer
from rich.console import Console
from rich.table import Table

from autograder import checks, exercises
from autograder.authoring import Lab
from autograder.authors import build
from autograder.grading import batch, run
from autograder.grading.layouts import Submission
from autograder.grading.seeds import seeds
from autograder.grading.store import ResultStore
from autograder.sessions.remote import RemoteSession
from autograder.walls import sandbox
from autograder.walls.zygote import Zygote
from benchmarks.harness import results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated
from benchmarks.peers import grading as peers
from benchmarks.peers.grading import ASSERTIONS, POINTS, SLUG, AbsentError, GradingPeer

SECRET = b"benchmark"
STUDENTS = {"right": False, "wrong": True}  # whose last exercise is wrong
SCORES = {"right": 5.0 * POINTS, "wrong": 4.0 * POINTS}
LAB_02 = "gradient_descent"
LIMIT_02 = 5.0  # seconds of its checks
LOOP_LIMIT = 2.0
DEADLOCK = "def step(x, comm):\n    comm.recv(x, (comm.rank + 1) % comm.size)\n"
LOOP = "def spin():\n    while True:\n        pass\n"


def peers_lab() -> Lab:
    """Make a lab of the peers' five exercises, each with one check of the peers' assertions."""
    lab = Lab(SLUG, number=0, title="Five")
    for name, assertions in ASSERTIONS.items():
        exercise = lab.exercise(name, points=POINTS, minutes=1)

        @exercise.check(points=POINTS)
        def holds(student, rng, name=name, assertions=assertions):
            "The assertions hold."
            for text in assertions:
                checks.that(eval(text, {name: getattr(student, name)}), f"This is false: {text}")

    return lab


@contextlib.contextmanager
def our_lane(lab: Lab, walls: str = ""):
    """Open one of our lanes, as a batch does; `walls` asks for weaker ones."""
    with contextlib.ExitStack() as stack:
        lane = stack.enter_context(batch.Lane(SECRET, lab, ResultStore(None)))
        if walls:
            lane.zygote = stack.enter_context(Zygote(walls))
        yield lane


def graded(lane: batch.Lane, path: Path) -> tuple[float, float]:
    """Grade one submission in a lane; return the seconds that it takes, and its score."""
    begin = time.perf_counter()
    result = lane.grade(Submission(path.stem, path))
    return time.perf_counter() - begin, result.score


# -- beside the peers -------------------------------------------------------------------------------------------------


def beside_peers(folder: Path, rounds: int, otter: Path, console: Console) -> dict:
    """Measure the seconds per submission of every installed competitor, in turns; say why others are absent."""
    absent, competitors = {}, []
    for name, make in (
        ("nbgrader", peers.nbgrader),
        ("otter", lambda place, students: peers.otter(place, students, otter)),
    ):
        place = folder / name
        place.mkdir()
        try:
            competitors += make(place, STUDENTS)
        except AbsentError as error:
            absent[name] = str(error)
            console.print(f"{name} is left out: {error}", markup=False)
    paths = {name: folder / f"{name}.ipynb" for name in STUDENTS}
    for name, path in paths.items():
        path.write_text(peers.notebook(STUDENTS[name]))
    with our_lane(peers_lab()) as lane:
        competitors.append(GradingPeer("ours", lambda student: graded(lane, paths[student])))
        seconds = in_turns(competitors, rounds)
    for peer in competitors:
        peer.close()
    return {"seconds": seconds, "absent": absent}


def in_turns(competitors: list[GradingPeer], rounds: int) -> dict[str, list[float]]:
    """Each grades each student once a round; the first round warms up and proves that all find the same scores."""
    seconds: dict[str, list[float]] = {peer.name: [] for peer in competitors}
    for turn in range(rounds + 1):
        for peer in rotated(competitors, turn):
            for student in STUDENTS if turn == 0 else ["right"] * (10 if peer.name == "ours" else 1):
                taken, score = peer.grade(student)
                if score != SCORES[student]:
                    raise ValueError(f"{peer.name} gives {student} {score:g} points, not {SCORES[student]:g}")
                if turn:
                    seconds[peer.name].append(taken)
    return seconds


# -- alone ------------------------------------------------------------------------------------------------------------


def lanes(folder: Path, count: int) -> dict:
    """Submissions per second of lab 02, solved, with one lane and with two, once all lanes are at work."""
    text, todo = build.write(build.solved(LAB_02)), []
    for number in range(count):
        path = folder / f"s{number:03}.ipynb"
        path.write_text(text)
        todo.append(Submission(path.stem, path))
    lab, found = exercises.load(LAB_02), {}
    for wanted in (1, 2):
        ends = []
        for _, result in batch.grade_all(todo, SECRET, lab, None, wanted):
            assert result.score == 100, result.summary()
            ends.append(time.perf_counter())
        warm = len(ends) // 4
        found[wanted] = (len(ends) - 1 - warm) / (ends[-1] - ends[warm])
    return found


def walls(folder: Path, count: int) -> dict[str, list[float]]:
    """Seconds of a submission with all the walls of this system and with limits alone, in turns."""
    path = folder / "right.ipynb"
    seconds: dict[str, list[float]] = {sandbox.tier(): [], "weak": []}
    path.write_text(peers.notebook(wrong=False))
    with our_lane(peers_lab()) as full, our_lane(peers_lab(), "weak") as weak:
        for turn in range(count + 2):
            for name, lane in ((sandbox.tier(), full), ("weak", weak)):
                taken, _ = graded(lane, path)
                if turn >= 2:
                    seconds[name].append(taken)
    return seconds


def failures(folder: Path, count: int) -> dict[str, list[float]]:
    """Measure seconds: until a deadlock of four ranks is reported (fresh processes), of five checks of a loop, and of a
    submission of lab 02 with five exercises that loop."""
    lab = Lab("failures", number=0, title="Failures")
    step = lab.exercise("step", points=50, minutes=1)
    step.check(points=50)(lambda student, rng: student.ranks("step", 4, lambda rank: (torch.zeros(1),)))
    spin = lab.exercise("spin", points=50, minutes=1)
    for number in range(5):

        def spins(student, rng):
            student.spin()

        spins.__name__ = f"spins_{number}"
        spin.check(points=10, seconds=LOOP_LIMIT)(spins)
    found: dict[str, list[float]] = {"deadlock": [], "loop": []}
    with Zygote() as zygote:
        for name, exercise, code, times in (("deadlock", step, DEADLOCK, count), ("loop", spin, LOOP, 1)):
            for _ in range(times):
                with RemoteSession(zygote, [("cell 1", code)], str(folder)) as session:
                    begin = time.perf_counter()
                    result = run.run_exercise(exercise, session, seeds(SECRET, ""))
                    found[name].append(time.perf_counter() - begin)
                assert result.points == 0
                assert name != "deadlock" or "deadlock" in result.checks[0].message, result.checks[0]
    return found | {"five loops": [five_loops(folder)]}


def five_loops(folder: Path) -> float:
    """Measure the seconds of a submission of lab 02 whose first five exercises loop, including the reference's time."""
    lab, notebook = exercises.load(LAB_02), build.solved(LAB_02)
    looping = list(lab.exercises.values())[:5]
    names = [name for exercise in looping for name in exercise.functions]
    code = "\n".join(f"def {name}(*args, **kwargs):\n    while True:\n        pass" for name in names)
    solved, loops = folder / "solved.ipynb", folder / "loops.ipynb"
    solved.write_text(build.write(notebook))
    notebook.cells.append(nbformat.v4.new_code_cell(code))
    loops.write_text(build.write(notebook))
    with batch.Lane(SECRET, lab, ResultStore(None)) as lane:
        graded(lane, solved)
        seconds, score = graded(lane, loops)
    assert score == lab.points - sum(exercise.points for exercise in looping), score
    return seconds


# -- promises and tables ----------------------------------------------------------------------------------------------


def promises(found: dict) -> list[dict]:
    """Return the measured promises: what, the bound, and the measured value (of medians)."""
    rows = []

    def row(what: str, bound: float, measured: float, unit: str, at_least: bool = True):
        kept = measured >= bound if at_least else measured <= bound
        rows.append({"what": what, "bound": bound, "measured": measured, "unit": unit, "kept": kept})

    if "peers" in found:
        middle = {name: statistics.median(seconds) for name, seconds in found["peers"]["seconds"].items()}
        for name in middle.keys() - {"ours"}:
            row(f"ours / {name}", 40 if name == "nbgrader, batch" else 100, middle[name] / middle["ours"], "x")
        row("five exercises, a lane", 25, 1 / middle["ours"], "submissions/s")
    if "lanes" in found:
        one, two = found["lanes"][1], found["lanes"][2]
        row("lab 02 with all its checks, a lane", 2, one, "submissions/s")
        row("lab 02, two lanes / one", 1.7, two / one, "x")
    if "walls" in found:
        full, weak = (statistics.median(found["walls"][name]) for name in (sandbox.tier(), "weak"))
        row(f"the walls ({sandbox.tier()}), a submission", 15, 1e3 * (full - weak), "ms", at_least=False)
    if "failures" in found:
        names = ("deadlock", "loop", "five loops")
        deadlock, loop, loops = (statistics.median(found["failures"][name]) for name in names)
        row("a deadlock of 4 ranks is reported", 0.5, deadlock, "s", at_least=False)
        row("five checks of a loop", 1.5, loop / LOOP_LIMIT, "limits", at_least=False)
        row("five exercises that loop", 2, loops / LIMIT_02, "limits", at_least=False)
    return sorted(rows, key=lambda row: row["what"])


def show(found: dict, console: Console) -> None:
    for part in ("peers", "walls", "failures"):
        seconds = found.get(part, {}).get("seconds", found.get(part, {}))
        if seconds:
            table = Table("what", "min", "median", "times measured", title=f"{part}: milliseconds")
            for name, values in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
                cells = (f"{1e3 * value:.1f}" for value in (min(values), statistics.median(values)))
                table.add_row(name, *cells, str(len(values)))
            console.print(table)
    table = Table("promise", "bound", "measured", "kept", title="Promises, by medians")
    for row in found["promises"]:
        kept = "yes" if row["kept"] else "NO"
        table.add_row(row["what"], f"{row['bound']:g} {row['unit']}", f"{row['measured']:.3g} {row['unit']}", kept)
    console.print(table)


def main(
    only: Annotated[list[str] | None, typer.Option(help="Parts: peers, lanes, walls, failures (default: all).")] = None,
    quick: Annotated[bool, typer.Option(help="A round of each.")] = False,
    otter: Annotated[Path, typer.Option(help="The Python of an environment with otter-grader 7.0.0.")] = Path(
        "artifacts/peers/otter/bin/python"
    ),
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Measure grading next to its peers, and check its promises."""
    console, size, out = Console(), 0.1 if quick else 1, results.file("grading", quick, out)
    module = types.ModuleType(f"autograder.exercises.{SLUG}")
    vars(module)["lab"], sys.modules[module.__name__] = peers_lab(), module
    exercises.LABS = (*exercises.LABS, SLUG)
    found: dict[str, Any] = {"machine": describe() | {"isolation": sandbox.words()}}
    console.print_json(json.dumps(found["machine"]))
    parts = {
        "peers": lambda folder: beside_peers(folder, max(1, round(6 * size)), otter.absolute(), console),
        "lanes": lambda folder: lanes(folder, max(4, round(40 * size))),
        "walls": lambda folder: walls(folder, max(3, round(60 * size))),
        "failures": lambda folder: failures(folder, max(1, round(9 * size))),
    }
    for name, measure in parts.items():
        if not only or name in only:
            with tempfile.TemporaryDirectory(prefix="grading-") as folder:
                found[name] = measure(Path(folder))
    found["promises"] = promises(found)
    show(found, console)
    results.save(found, out)
    console.print(f"All measurements: {out}")
