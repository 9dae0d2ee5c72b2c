"""A folder of four submissions of a real lab gets the four grades it deserves."""

import csv
import json
import subprocess
import sys
import time

import pytest

from autograder import exercises
from autograder.authoring import BANK
from autograder.authors import build

SLUG = "gradient_descent"
LAB = exercises.load(SLUG)


def exercise_cell(notebook, name: str):
    return next(cell for cell in notebook.cells if cell.metadata.get("hpcdl", {}).get("exercise") == f"{SLUG}.{name}")


def wrong_answer(exercise: str, mistake: str):
    import importlib

    importlib.import_module(f"autograder.bank.{SLUG}")
    found = [wrong for wrong in BANK if wrong.exercise == f"{SLUG}.{exercise}" and wrong.mistake == mistake]
    assert len(found) == 1, [wrong.mistake for wrong in BANK]
    return found[0]


TWO_WRONG = (("max_stable_lr", "1 for 2"), ("adam_step", "no bias correction"))
LOOPING = "parallel_gradient"


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The output folder and the wall seconds of one `autograder grade` over the four submissions and a wrong file."""
    folder = tmp_path_factory.mktemp("grading")
    reference, blank = build.solved(SLUG), build.student(SLUG)
    mistaken, looping = build.solved(SLUG), build.solved(SLUG)
    for exercise, mistake in TWO_WRONG:
        exercise_cell(mistaken, exercise).source += "\n\n\n" + wrong_answer(exercise, mistake).source
    exercise_cell(looping, LOOPING).source = "def parallel_gradient(grad, w, shards):\n    while True:\n        pass\n"
    for student, notebook in {"ada": reference, "ben": blank, "cleo": mistaken, "dan": looping}.items():
        (folder / "in" / student).mkdir(parents=True)
        (folder / "in" / student / f"02_{SLUG}.ipynb").write_text(build.write(notebook), encoding="utf-8")
    (folder / "in" / "eve").mkdir()
    (folder / "in" / "eve" / f"02_{SLUG}.ipynb").write_bytes(b"PK\x03\x04 not a notebook")
    command = [sys.executable, "-m", "autograder", "grade", str(folder / "in"), "--out", str(folder / "out")]
    command += ["--allow-weak"]
    begin = time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder / "out", time.perf_counter() - begin


@pytest.fixture(scope="module")
def rows(graded):
    with (graded[0] / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def result(graded, student: str) -> dict:
    return json.loads((graded[0] / student / f"{SLUG}.json").read_text(encoding="utf-8"))


def test_the_table_has_a_row_for_everyone(graded, rows):
    print(f"five submissions graded in {graded[1]:.1f} s")
    assert set(rows) == {"ada", "ben", "cleo", "dan", "eve"}
    assert list(rows["ada"])[:6] == ["student", "lab", "score", "max_score", "status", "message"]
    assert all(float(row["max_score"]) == 100 for name, row in rows.items() if name != "eve")


def test_the_reference_gets_everything_and_the_blank_notebook_nothing(rows):
    assert float(rows["ada"]["score"]) == 100
    assert float(rows["ben"]["score"]) == 0


def test_a_wrong_answer_in_two_exercises_leaves_exactly_the_others_points(graded, rows):
    lost = 0.0
    for exercise, mistake in TWO_WRONG:
        checks = LAB.exercises[exercise].checks
        lost += sum(checks[name].points for name in wrong_answer(exercise, mistake).fails)
    assert float(rows["cleo"]["score"]) == 100 - lost
    wrong = {name for name, _ in TWO_WRONG}
    for exercise in result(graded, "cleo")["exercises"]:
        if exercise["name"] not in wrong:
            assert exercise["points"] == exercise["max_points"], exercise["name"]


def test_an_endless_loop_costs_its_exercise_alone(graded, rows):
    assert float(rows["dan"]["score"]) == 100 - LAB.exercises[LOOPING].points
    assert "second" in json.dumps(result(graded, "dan")), "the report states the time limit"


def test_a_file_that_is_no_notebook_is_ungradable_with_a_reason(rows):
    assert rows["eve"]["status"] == "ungradable"
    assert rows["eve"]["message"]


def test_the_result_lists_every_exercise_and_check(graded):
    for student in ("ada", "ben", "cleo", "dan"):
        listed = {e["name"]: {c["name"] for c in e["checks"]} for e in result(graded, student)["exercises"]}
        assert listed == {e.name: set(e.checks) for e in LAB.exercises.values()}
