"""Two judges, one notebook: what `check` says in a notebook is what grading says, whatever style the cells are in."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograder import exercises
from autograder.authoring import Lab
from autograder.authors import build
from autograder.grading import batch, layouts, selfcheck, submitted
from autograder.grading.grade import grade_bytes
from autograder.walls.zygote import Zygote
from hpcdl import submit

TEXT = (Path(__file__).parent / "cells.txt").read_text(encoding="utf-8")
CASE = re.compile(r"^=== (\w+)(?:: ([^\n]+?))?(?: ! ([^\n]*))?( ~)?\n(.*?)(?=^=== |\Z)", re.MULTILINE | re.DOTALL)
CASES = CASE.findall(TEXT)
LAB = exercises.load("gradient_descent")
EXERCISE = LAB.exercises["gradient_descent"]
ALONE = Lab(LAB.slug, number=LAB.number, title=LAB.title)  # the lab, with the one exercise that the cells answer
ALONE.exercises[EXERCISE.name] = EXERCISE


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as zygote:
        yield zygote


ANSWER = """# %%
def gradient_descent(grad, w0, lr, steps):
    path = [w0]
    for _ in range(steps):
        path.append(path[-1] + {} * lr * grad(path[-1]))
    return torch.stack(path)
"""


def cells_of(text: str, sign: str = "") -> list[str]:
    """Return the lab's first cell, those of the case, and the answer with this sign, if any."""
    first = "" if text.startswith("# %% SIGN") else "# %%\n"
    text = first + text + (f"# %% SIGN: {sign}\n" if sign else "")
    text = re.sub(r"^# %% SIGN: (.+)\n", lambda found: ANSWER.format(found[1]), text, flags=re.MULTILINE)
    return [build.code("gradient_descent")[0], *re.split(r"^# %%\n", text, flags=re.MULTILINE)[1:]]


@pytest.fixture(scope="module")
def kernels():
    """`kernels(cells, folder)`: the points and messages that `check` finds after IPython has run the cells; errors."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("kernels.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def ask(cells: list[str], folder: Path) -> list:
            print(json.dumps([cells, str(folder)]), file=server.stdin, flush=True)
            return json.loads(server.stdout.readline())

        yield ask
        server.stdin.close()


@pytest.mark.thinned(48, 48)
@pytest.mark.parametrize(("name", "sign", "said", "twice", "text"), CASES, ids=[name for name, *_ in CASES])
def test_both_judges_agree(name, sign, said, twice, text, zygote, kernels, tmp_path):
    """`! sentence`: grading cannot do it and says so. `~`: what changes an object is seen in a second look alone."""
    if "import pandas" in text:
        pytest.importorskip("pandas")
    cells = cells_of(text, sign)
    nodes = [nbformat.v4.new_code_cell(cell.rstrip()) for cell in cells]
    points, messages, errors = (0, [], []) if said else kernels(cells, tmp_path)
    for number, error in errors:  # a cell may raise: the notebook shows it, and what it did before stays
        is_text = isinstance(error, str)
        nodes[number].outputs.append(
            nbformat.v4.new_output("stream", text=error) if is_text else nbformat.v4.new_output("error", **error)
        )
    data = nbformat.writes(nbformat.v4.new_notebook(cells=nodes)).encode()
    result = grade_bytes(data, "02.ipynb", zygote, "ada", selfcheck.SECRET, ALONE, mpi=False)
    graded = next(each for each in result.exercises if each.name == EXERCISE.name)
    if said:
        assert said in " ".join([*result.notes, *(check.message for check in graded.checks)]), graded
        return
    assert points == EXERCISE.points, messages
    assert graded.points == EXERCISE.points, [result.notes, *[check.message for check in graded.checks]]
    assert ("was checked again" in graded.note) == bool(twice)


# -- what lies next to a notebook: the same in all four commands

NEAR = {
    "signs.py": "import digits_of\nSIGN = digits_of.one()",
    "digits_of.py": "def one():\n    return -1.0",
    "tools/__init__.py": "from .scale import factor",
    "tools/scale.py": "factor = 1.0",
    "data/rate.txt": "2.0",
    "part0.csv": "0.25",
    "part1.csv": "0.25",
    "more.py": "ONE = 1.0",
    "private.txt": "no command reads this",
}
USES_THEM = """
import glob
import signs, tools
%run more.py
from pathlib import Path
RATE = float(Path("data/rate.txt").read_text())
PARTS = sum(float(Path(name).read_text()) for name in glob.glob("part*.csv"))

def gradient_descent(grad, w0, lr, steps):
    path = [w0]
    for _ in range(steps):
        path.append(path[-1] + signs.SIGN * tools.factor * RATE * PARTS * ONE * lr * grad(path[-1]))
    return torch.stack(path)
"""


@pytest.mark.labs
def test_four_commands_agree_about_files(tmp_path):
    """`autograder check`, `grade-one` and `grade`, and `hpcdl submit`."""
    for name, text in NEAR.items():
        (tmp_path / "ada" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ada" / name).write_text(text)
    path = tmp_path / "ada" / "02_gradient_descent.ipynb"
    cells = [
        *cells_of(USES_THEM),
        'from autograder import check\ncheck("gradient_descent.gradient_descent")',
    ]
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells])
    document.metadata["hpcdl"] = {"lab": LAB.slug}
    nbformat.write(document, path)
    found = submit.examine(path)
    assert found.points == {EXERCISE.name: EXERCISE.points}, found
    assert {*found.along} == {*NEAR} - {"private.txt"}
    submit.write(found, path, tmp_path / "ben.zip")
    todo = [submitted.alone("check", path), *layouts.submissions(tmp_path)]
    for submission, result in batch.grade_all(todo, b"s", allow_weak=True):
        points = {each.name: each.points for each in result.exercises}
        assert points[EXERCISE.name] == EXERCISE.points, (submission.student, result)
        assert "next to the notebook came along" in " ".join(result.notes)
    assert [each.student for each in todo] == ["check", "ada", "ben"]


def test_a_large_file_is_named(tmp_path):
    path = tmp_path / "lab.ipynb"
    path.write_text(json.dumps({"cells": [{"source": "import big"}]}))
    with open(tmp_path / "big.py", "wb") as file:
        file.truncate(3 << 20)
    along, left = submit.files_along(path, path.read_bytes())
    found = submit.OwnSubmission("l", "lab.ipynb", "", [], along=along, left=left, environment={})
    assert "These files do not: big.py." in " ".join(submit.say(found))
    _, along = submitted.held(submitted.alone("ada", path))
    assert along.left == {"big.py": "the file has 3 MiB, more than 1 MiB; hand in a smaller one"}
