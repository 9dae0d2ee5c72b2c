"""The instructors' README works as it stands: its lab is built, proved and graded by its own commands."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.authoring import Lab
from autograder.cli import app
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.outputs.cli import app as export
from autograder.sessions.local import LocalSession

pytestmark = pytest.mark.labs

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "autograder" / "README.md").read_text(encoding="utf-8")
FILES = re.compile(r"```(?:python|text)\n# (?P<path>\S+)\n(?P<text>.*?)```", re.DOTALL)
WRONG = "def ema(x, decay):\n    return float(decay * x.mean())\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the autograder with the README's files in it, and nothing else that is new."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "autograder", root / "autograder", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "hpcdl", root / "hpcdl", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "labs" / "source").mkdir(parents=True)
    labs = root / "autograder" / "exercises" / "__init__.py"
    labs.write_text(re.sub(r"(LABS[^=\n]*= \([^)]*?),?\s*\)", r'\1, "averages")', labs.read_text(), count=1))
    for match in FILES.finditer(README):
        path = root / match["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(match["text"], encoding="utf-8")
    run(root, "-m", "autograder.authors.build")
    return root


def run(root, *arguments, code=(0,)):
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in code, done.stdout + done.stderr
    return done


def test_the_readme_has_the_files_of_a_lab_and_students_get_no_solution(repository):
    assert [match["path"] for match in FILES.finditer(README)] == [
        "autograder/exercises/averages/ema.py",
        "autograder/exercises/averages/__init__.py",
        "labs/source/90_averages.py",
        "autograder/bank/averages/ema.py",
        "autograder/bank/averages/__init__.py",
        "tests/autograder/honest/averages.py",
        "tests/autograder/impostors/averages.py",
        "tests/autograder/sentences/averages.txt",
    ]
    notebook = (repository / "labs" / "90_averages.ipynb").read_text()
    assert "raise NotImplementedError" in notebook
    assert "average = x[0]" not in notebook


def test_the_lab_of_the_readme_proves_itself(repository):
    shown = run(repository, "-m", "autograder", "selfcheck", "averages").stdout
    assert [line.split("✓ ")[1] for line in shown.splitlines() if "✓ " in line] == [
        "points",
        "the reference has all points",
        "blank has none, and each check says so",
        "lazy answers have none",
        *[f"averages.ema: {mistake}" for mistake in ("starts at zero", "swaps the weights", "works in place")],
    ]
    assert "✗" not in shown


@pytest.fixture(scope="module")
def results(repository, tmp_path_factory, notebook_text):
    """The results of three submissions of that lab: right, wrong and blank."""
    tmp_path = tmp_path_factory.mktemp("class")
    answer = dict(FILES.findall(README))["labs/source/90_averages.py"].partition("    # BEGIN SOLUTION\n")
    head = "import torch\n\n\n" + answer[0][answer[0].rindex("def ema") :]
    right = head + answer[2].partition("    # END SOLUTION")[0]
    for student, code in {"ada": right, "ben": WRONG, "cyd": head + "    raise NotImplementedError\n"}.items():
        path = tmp_path / "submissions" / student / "lab.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(notebook_text(code, hpcdl={"lab": "averages"}))
    results = tmp_path / "results"
    grade = ("-m", "autograder", "grade", tmp_path / "submissions", "--out", results)
    if run(repository, *grade, code=(0, 4)).returncode == 4:  # a machine that has no walls
        run(repository, *grade, "--allow-weak")
    return results


def test_three_submissions_of_it_are_graded_and_shown(repository, results):
    with open(results / "grades.csv", newline="") as file:
        scores = {row["student"]: row["score"] for row in csv.DictReader(file)}
    assert scores == {"ada": "100", "ben": "0", "cyd": "0"}
    run(repository, "-m", "autograder", "export", "html", results)
    assert "The average of one value" in (results / "feedback" / "ben" / "averages.html").read_text()


def test_its_results_reach_the_gradebook_of_nbgrader_itself(repository, results, tmp_path):
    api = pytest.importorskip("nbgrader.api", reason="nbgrader is not installed")
    run(repository, "-m", "autograder", "export", "nbgrader", results, tmp_path)
    with api.Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        assert {s.student.id: s.score for s in book.assignment_submissions("averages")} == {
            "ada": 100,
            "ben": 0,
            "cyd": 0,
        }


SHIFT = """
import torch

def shift(x, comm):
    left, right, out = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size, torch.empty_like(x)
    comm.sendrecv(x, right, out, left)
    x.copy_(out)
"""


@pytest.mark.parametrize(
    ("change", "points"),
    [
        (("", ""), 100),
        (("(x, right, out, left)", "(x, left, out, right)"), 0),
        (("x.copy_(out)", "comm.barrier(); x.copy_(out); comm.isend(x[:0], right), comm.recv(x[:0], left)"), 60),
    ],
)
def test_the_exercise_over_ranks_checks_what_it_says(change, points):
    (code,) = re.findall(r"```python\n(import torch\n.*?)```", README, re.DOTALL)
    declared, answer = {}, {}
    exec(code, declared)
    exec(SHIFT.replace(*change), answer)
    lab = Lab("rotation", number=91, title="Once round the ring", exercises=(declared["exercise"],))
    assert run_exercise(lab.exercises["shift"], LocalSession(answer), seeds(b"", "ada")).points == points


def test_every_command_in_the_readme_exists():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    formats = {command.name or command.callback.__name__ for command in export.registered_commands}
    used = re.findall(r"autograder (grade|selfcheck|check|doctor|replay|export)\b(?: (\w+))?", README)
    assert used
    assert {name for name, _ in used if name != "export"} <= known
    assert {kind for name, kind in used if name == "export"} == formats
