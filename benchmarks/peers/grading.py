"""One notebook of five exercises, with one list of assertions, as nbgrader, otter-grader and ours grade it.

A peer grades in a process of its own, kept alive between submissions (its batch, or its function), or is started for
each one (its command line). None has torch to import: the answers need nothing but Python.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SLUG = "five"
OTTER = "otter-grader==7.0.0"
ANSWERS = {
    "mean": "def mean(x):\n    return sum(x) / len(x)",
    "variance": "def variance(x):\n    m = sum(x) / len(x)\n    return sum((v - m) ** 2 for v in x) / len(x)",
    "fibonacci": (
        "def fibonacci(n):\n    a, b, found = 0, 1, []\n"
        "    for _ in range(n):\n        found.append(a)\n        a, b = b, a + b\n    return found"
    ),
    "is_prime": "def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))",
    "count_words": (
        "def count_words(text):\n    found = {}\n"
        "    for word in text.split():\n        found[word] = found.get(word, 0) + 1\n    return found"
    ),
}
WRONG = "def count_words(text):\n    return {word: 1 for word in text.split()}"
ASSERTIONS = {
    "mean": ["mean([1.0, 2.0, 6.0]) == 3.0", "mean([4.0]) == 4.0", "mean([-1.0, 1.0]) == 0.0"],
    "variance": ["variance([1.0, 3.0]) == 1.0", "variance([5.0]) == 0.0", "variance([0.0, 0.0, 3.0]) == 2.0"],
    "fibonacci": ["fibonacci(7) == [0, 1, 1, 2, 3, 5, 8]", "fibonacci(0) == []", "fibonacci(50)[-1] == 7778742049"],
    "is_prime": ["is_prime(97)", "not is_prime(1)", "not is_prime(91)", "is_prime(2)"],
    "count_words": [
        "count_words('a b a') == {'a': 2, 'b': 1}",
        "count_words('') == {}",
        "count_words('x') == {'x': 1}",
    ],
}
POINTS = 20

NBGRADER = """
import sys, time, warnings
warnings.simplefilter("ignore")
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config
config = Config()
config.CourseDirectory.course_id, config.CourseDirectory.root = "course", sys.argv[1]
api = NbGraderAPI(config=config)
assert api.generate_assignment("five", force=True, create=True)["success"]
print("ready", flush=True)
for student in map(str.strip, sys.stdin):
    begin = time.perf_counter()
    done = api.autograde("five", student, force=True, create=True)
    seconds = time.perf_counter() - begin
    with Gradebook(api.coursedir.db_url) as book:
        print("graded", seconds, book.find_submission("five", student).score, flush=True)
"""
OTTER_API = """
import sys, time, warnings
warnings.simplefilter("ignore")
from otter.api import grade_submission
print("ready", flush=True)
for student in map(str.strip, sys.stdin):
    begin = time.perf_counter()
    found = grade_submission(f"{sys.argv[1]}/{student}.ipynb", f"{sys.argv[1]}/autograder.zip", quiet=True)
    print("graded", time.perf_counter() - begin, found.total, flush=True)
"""


class AbsentError(Exception):
    """A peer cannot be measured here; the message says why and what to do."""


@dataclass
class GradingPeer:
    """`grade(student)` returns the seconds of one submission and its score."""

    name: str
    grade: Callable[[str], tuple[float, float]]
    close: Callable[[], object] = lambda: None


def notebook(wrong: bool, tests: bool = False) -> str:
    """Return a submission, all right or with the last exercise wrong; `tests`: with nbgrader's cells and metadata."""
    cells = []
    for name, answer in ANSWERS.items():
        source = WRONG if wrong and name == "count_words" else answer
        common = {"schema_version": 3, "task": False}
        solution = {**common, "grade": False, "solution": True, "locked": False, "grade_id": f"{name}-answer"}
        cells.append(_cell(f"{name}-answer", source, {"nbgrader": solution} if tests else {}))
        if tests:
            test = {**common, "grade": True, "solution": False, "locked": True, "grade_id": name, "points": POINTS}
            cells.append(_cell(name, "\n".join(f"assert {text}" for text in ASSERTIONS[name]), {"nbgrader": test}))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "hpcdl": {"lab": SLUG}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})


def _cell(name: str, source: str, metadata: dict) -> dict:
    code: dict[str, object] = {"cell_type": "code", "outputs": [], "execution_count": None}
    return {**code, "id": name.replace("_", "-"), "source": source, "metadata": metadata}


class GradingServer:
    """A process that grades one student a line, and says how long each took."""

    def __init__(self, python: str, code: str, folder: Path):
        self.process = subprocess.Popen(
            [python, "-c", code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(python),
        )
        questions, answers = self.process.stdin, self.process.stdout
        assert questions is not None
        assert answers is not None  # both are pipes
        self.questions, self.answers = questions, answers
        self.wait_for("ready")

    def wait_for(self, word: str) -> list[str]:
        for line in self.answers:
            if line.startswith(word):
                return line.split()[1:]
        raise AbsentError(f"it ended with exit code {self.process.wait()}")

    def grade(self, student: str) -> tuple[float, float]:
        self.questions.write(student + "\n")
        self.questions.flush()
        seconds, score = self.wait_for("graded")
        return float(seconds), float(score)

    def close(self) -> None:
        self.questions.close()
        self.process.wait()


def environment(python: str) -> dict[str, str]:
    """One thread, and the programs beside `python` found by name: nbgrader calls alembic so, and both their kernels."""
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def timed(command: list[str], folder: Path) -> float:
    begin = time.perf_counter()
    try:
        subprocess.run(command, cwd=folder, env=environment(command[0]), capture_output=True, text=True, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()[-300:]
        raise AbsentError(f"`{' '.join(Path(part).name for part in command[:4])}` failed: {said}") from None
    return time.perf_counter() - begin


def nbgrader(folder: Path, students: dict[str, bool]) -> list[GradingPeer]:
    """Return nbgrader's API in one process, and its command line for each student; each has its own course folder."""
    try:
        import nbgrader.api  # noqa: F401
    except ImportError:
        raise AbsentError("nbgrader is not installed: pip install 'hpcdl[nbgrader]'") from None
    for course in ("batch", "one call"):
        files = {f"source/{SLUG}": False} | {f"submitted/{name}/{SLUG}": wrong for name, wrong in students.items()}
        for place, wrong in files.items():
            path = folder / course / place / f"{SLUG}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(notebook(wrong, tests=True))
    config = "c = get_config()\nc.CourseDirectory.course_id = 'course'\n"
    (folder / "one call" / "nbgrader_config.py").write_text(config)
    command = [sys.executable, "-m", "nbgrader"]
    timed([*command, "generate_assignment", SLUG, "--create"], folder / "one call")
    server = GradingServer(sys.executable, NBGRADER, folder / "batch")

    def one_call(student: str) -> tuple[float, float]:
        more = ("--student", student, "--create", "--force")
        seconds = timed([*command, "autograde", SLUG, *more], folder / "one call")
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{folder / 'one call' / 'gradebook.db'}") as book:
            return seconds, book.find_submission(SLUG, student).score

    return [GradingPeer("nbgrader, batch", server.grade, server.close), GradingPeer("nbgrader, one call", one_call)]


def otter(folder: Path, students: dict[str, bool], python: Path) -> list[GradingPeer]:
    """Return otter's function in one process, and its command line, both from an environment created if needed."""
    make_environment(python)
    (folder / "tests").mkdir()
    for name, assertions in ASSERTIONS.items():
        case = {"code": "\n".join(f">>> assert {text}" for text in assertions), "hidden": False, "locked": False}
        suite = {"cases": [case], "scored": True, "setup": "", "teardown": "", "type": "doctest"}
        test = {"name": name, "points": POINTS, "suites": [suite]}
        (folder / "tests" / f"{name}.py").write_text(f"OK_FORMAT = True\ntest = {test!r}\n")
    for name, wrong in students.items():
        (folder / f"{name}.ipynb").write_text(notebook(wrong))
    command = str(python.parent / "otter")
    timed([command, "generate", "-t", "tests", "-o", "autograder.zip"], folder)
    server = GradingServer(str(python), OTTER_API, folder)

    def one_call(student: str) -> tuple[float, float]:
        seconds = timed([command, "run", "-a", "autograder.zip", f"{student}.ipynb"], folder)
        tests = json.loads((folder / "results.json").read_text())["tests"]
        return seconds, sum(test.get("score", 0.0) for test in tests)

    return [GradingPeer("otter, batch", server.grade, server.close), GradingPeer("otter, one call", one_call)]


def make_environment(python: Path) -> None:
    """An environment with otter-grader at `python`; AbsentError where it cannot be made."""
    if python.exists():
        return
    folder = python.parent.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
        install = [str(python), "-m", "pip", "install", "--quiet", OTTER, "ipykernel"]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise AbsentError(f"no environment with {OTTER} could be made at {folder} ({type(error).__name__})") from None
