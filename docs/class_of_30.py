"""Thirty submissions of lab 02 as a class hands them in: good, partly right, broken and hostile; and two grade sheets.

python docs/class_of_30.py submissions
"""

import csv
import sys
from pathlib import Path

import nbformat

from autograder.authors import build
from autograder.grading.selfcheck import bank

SLUG = "gradient_descent"
NAMES = [
    *("ada", "alan", "barbara", "claude", "donald", "edsger", "emmy", "frances", "george", "grace", "hedy", "ivan"),
    *("joan", "john", "karen", "ken", "kurt", "leslie", "lynn", "margaret", "niklaus"),
    *("noam", "peter", "radia", "richard", "robin", "shafi", "sophie", "tim", "vint"),
]
MISTAKES = [  # of the bank, by exercise and name: new wrong answers move nothing
    ("gradient_descent", "ascends"),
    ("gradient_descent", "computes each gradient twice"),
    ("gradient_descent", "takes every valley for a quadratic one"),
    ("mse_grad", "error with the wrong sign"),
    ("mse_grad", "the loss in brackets"),
    ("mse_grad", "no gradient for five samples"),
    ("max_stable_lr", "1 for 2"),
    ("max_stable_lr", "a limit for each direction"),
    ("minibatches", "seeds the generator itself: one order forever"),
]
BROKEN = {"empty": "", "truncated": '{"cells": [{"cell_type": "co', "no notebook": "my answers: see e-mail\n"}
HOSTILE = {
    "a loop without end": "def mse_grad(w, X, y):\n    while True:\n        pass",
    "leaves": "import os\n\ndef mse_grad(w, X, y):\n    os._exit(0)",
    "always equal": "class Equal:\n    __eq__ = lambda *_: True\n\ndef mse_grad(w, X, y):\n    return Equal()",
}


def notebooks() -> list[str]:
    """The text of each submission: 12 solved, 9 with a known mistake, 3 blank, 3 broken, 3 hostile."""
    solved, blank = build.write(build.solved(SLUG)), build.write(build.student(SLUG))
    sources = {(answer.exercise.removeprefix(f"{SLUG}."), answer.mistake): answer.source for answer in bank(SLUG)}
    mistakes = [with_cell(sources[mistake]) for mistake in MISTAKES]
    return [*[solved] * 12, *mistakes, *[blank] * 3, *BROKEN.values(), *map(with_cell, HOSTILE.values())]


def with_cell(code: str) -> str:
    """The solved lab with one more cell below, whose definitions count."""
    notebook = build.solved(SLUG)
    notebook.cells.append(nbformat.v4.new_code_cell(code, id="last"))
    return build.write(notebook)


def write(folder: Path) -> None:
    """Write `folder/<student>/02_gradient_descent.ipynb`, and beside it what Canvas and Moodle would export."""
    for name, text in zip(NAMES, notebooks(), strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "02_gradient_descent.ipynb").write_text(text, encoding="utf-8")
    with (folder.parent / "canvas.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "gradient_descent (17)"])
        out.writerow(["    Points Possible", "", "", "", "", "100"])
        out.writerows([name.title(), 100 + i, name, name, "A", ""] for i, name in enumerate(NAMES))
    with (folder.parent / "moodle.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(
            ["Identifier", "Full name", "Email address", "Status", "Grade", "Maximum Grade", "Feedback comments"]
        )
        out.writerows(
            [f"Participant {100 + i}", name.title(), f"{name}@example.org", "Submitted", "", "100", ""]
            for i, name in enumerate(NAMES)
        )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    print(f"{len(NAMES)} submissions in {sys.argv[1]}, beside it canvas.csv and moodle.csv")
