"""A student who makes every mistake of the banks, and runs all cells each time, sees sentences and no traceback.

A round is the whole lab, top to bottom, each exercise answered by another of its wrong answers: so the cells that the
lab gives, and which call what the student wrote, meet each mistake, too.
"""

import re
from itertools import zip_longest

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading.selfcheck import bank

from .test_notebooks import execute

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


OWN_WARNING = re.compile(r"\S*ipykernel_\S+\.py:\d+: \w*Warning: ")  # of a line in the notebook: it is for its author


def rounds(slug: str) -> list[dict[str, str]]:
    """By round, the wrong answer to each exercise; who has run out of mistakes answers right."""
    by_exercise: dict[str, list[str]] = {}
    for wrong in bank(slug):
        by_exercise.setdefault(wrong.exercise, []).append(wrong.source)
    columns = zip_longest(*by_exercise.values())
    return [{name: code for name, code in zip(by_exercise, column, strict=True) if code} for column in columns]


def with_mistakes(slug: str, wrong: dict[str, str]):
    notebook = build.solved(slug)
    for cell in notebook.cells:
        if code := wrong.get(cell.metadata.get("hpcdl", {}).get("exercise", "")):
            cell.source += f"\n\n\n{code}"
    return notebook


def raw(cell) -> list[str]:
    """What of a cell's outputs no student should see."""
    found = []
    for out in cell.get("outputs", []):
        text = str(out.get("data", {}).get("text/plain", ""))
        if out.output_type == "error":
            found.append(f"{out.ename}: {out.evalue}")
        elif "Traceback (most recent call last)" in text or (out.get("name") == "stderr" and not is_own(out.text)):
            found.append(text or out.text)
    return found


def is_own(text: str) -> bool:
    """Whether all of it are warnings of lines in the notebook, each with its line below it."""
    return all(OWN_WARNING.match(line) or line.startswith("  ") for line in text.splitlines())


@pytest.mark.mpi
@pytest.mark.parametrize("slug", exercises.LABS)
def test_all_mistakes_of_the_bank_meet_no_traceback(slug, tmp_path):
    met = []
    for count, wrong in enumerate(rounds(slug)):
        folder = tmp_path / str(count)
        folder.mkdir()
        notebook = execute(with_mistakes(slug, wrong), folder, allow_errors=True)
        met += [f"round {count}, {cell.id}: {text}" for cell in notebook.cells for text in raw(cell)]
    assert not met, "\n".join(met)
