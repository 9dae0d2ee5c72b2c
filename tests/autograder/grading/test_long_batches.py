"""Batches as a course has them: killed again and again, and 500 submissions with hostile ones among them."""

import copy
import csv
import itertools
import json
import os
import random
import subprocess
import sys
import time

import pytest

from autograder.authors import build
from autograder.grading.selfcheck import bank
from autograder.walls import sandbox

LAB = "gradient_descent"
KILLS = int(os.environ.get("HPCDL_KILLS", "50"))
PIECES = 10
CLASS = int(os.environ.get("HPCDL_CLASS", "500"))
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

HOSTILE = {  # bodies of the lab's first function, and one file that is none
    "loops": "while True: pass",
    "sleeps": "import time\n    time.sleep(1e6)",
    "eats memory": "kept = []\n    while True: kept.append(bytearray(1 << 28))",
    "ends": "import os\n    os._exit(0)",
    "crashes": "import ctypes\n    ctypes.string_at(0)",
    "stops": "import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)",
    "forks": "import os\n    while True: os.fork()",
    "starts threads": "import threading\n    while True: threading.Timer(1e6, print).start()",
    "floods": "while True: print('x' * 1_000_000)",
    "forges": "import os\n    for n in range(3, 9): os.write(n, b'[' * 99)",
    "writes": "import itertools\n    for n in itertools.count(): open(f'f{n}', 'w').write('x' * 1_000_000)",
    "recurses": "return mse_loss(w, X, y)",
}


def exercise_cell(notebook, exercise: str):
    return next(cell for cell in notebook.cells if cell.metadata.get("hpcdl", {}).get("exercise") == exercise)


def submissions(folder, count: int, hostile: int) -> None:
    """`count` submissions of lab 02: most solved, some with a mistake of the bank, `hostile` of them hostile."""
    folder.mkdir()
    wrong, attacks, solved = itertools.cycle(bank(LAB)), itertools.cycle(HOSTILE.values()), build.solved(LAB)
    for number in range(count):
        notebook = copy.deepcopy(solved)
        if number < hostile - 1:
            cell = exercise_cell(notebook, f"{LAB}.mse_grad")
            cell.source += f"\n\n\ndef mse_loss(w, X, y):\n    {next(attacks)}\n"
        elif number % 5 == 0:
            answer = next(wrong)
            exercise_cell(notebook, answer.exercise).source += "\n\n\n" + answer.source
        text = build.write(notebook)
        if number == hostile - 1:
            text = text[: len(text) // 2]
        (folder / f"s{number:03}.ipynb").write_text(text, encoding="utf-8")


def command(folder, out, *more) -> list[str]:
    return [sys.executable, "-m", "autograder", "grade", str(folder), "--out", str(out), "--lanes", "2", *more]


def rows(out) -> list[dict]:
    with open(out / "grades.csv", newline="") as file:
        return list(csv.DictReader(file))


def grades(out) -> dict:
    """Everything that was written for the students, without the times it took."""
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob("*/*.json") if path.parent != out}
    return {"rows": rows(out), **{name: without_times(result) for name, result in found.items() if name != ".cache"}}


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key != "seconds"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A folder of 12 submissions, the secret's file, the grades of an undisturbed batch, and its seconds."""
    place = tmp_path_factory.mktemp("undisturbed")
    submissions(place / "in", 12, hostile=0)
    (place / "secret").write_text("course")
    begin = time.monotonic()
    whole = command(place / "in", place / "out", "--secret-file", str(place / "secret"))
    subprocess.run(whole, check=True, capture_output=True)
    seconds = time.monotonic() - begin
    assert {row["status"] for row in rows(place / "out")} == {"graded"}
    return place, grades(place / "out"), seconds


@pytest.mark.skipif(sandbox.tier() == "weak", reason="this system has no sandbox")
@pytest.mark.parametrize("piece", range(PIECES))
def test_grader_killed_at_random_gives_the_same_grades(undisturbed, tmp_path, piece):
    place, expected, seconds = undisturbed
    rng, kills, finished, out = random.Random(piece), 0, 0, tmp_path / "out0"

    def batch():
        secret = ("--secret-file", str(place / "secret"))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command(place / "in", out, *secret), **quiet)

    while kills < KILLS // PIECES:
        process = batch()
        try:
            assert process.wait(rng.uniform(0.0, seconds)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        assert grades(out) == expected  # whatever had been killed before
        finished += 1
        out = tmp_path / f"out{finished}"
    assert batch().wait() == 0
    print(f"\npiece {piece}: {kills} kills, {finished + 1} batches brought to their end")
    assert grades(out) == expected


@pytest.mark.skipif(sandbox.tier() == "weak", reason="this system has no sandbox")
def test_class_of_500_takes_five_minutes(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    submissions(folder, CLASS, hostile=CLASS // 20)
    begin = time.perf_counter()
    subprocess.run(command(folder, out), check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    found = {row["student"]: row for row in rows(out)}
    print(f"\n{CLASS} submissions graded in {seconds:.0f} s")
    assert sorted(found) == [f"s{number:03}" for number in range(CLASS)]
    hostile = [found[f"s{number:03}"] for number in range(CLASS // 20)]
    solved = [row for row in found.values() if int(row["student"][1:]) % 5 and row not in hostile]
    assert {row["score"] for row in solved} == {"100"}
    assert all(float(row["score"]) < 100 for row in hostile)
    assert [row["status"] for row in hostile].count("ungradable") == 1
    assert seconds < 300 * CLASS / 500 + 10
