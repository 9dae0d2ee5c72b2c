"""Points are for what the student wrote: answers that the library or a framework gives have none, and are flagged.

`impostors/SLUG.py` answers each exercise of a lab by calling hpcdl (`LIBRARY`) and torch or others (`FRAMEWORKS`), or
says why they have nothing to call (`NOT_IN_LIBRARY`, `NOT_IN_FRAMEWORKS`).
"""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import follow, run, selfcheck
from autograder.grading.grade import grade_notebook
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.inside.notebook import Notebook
from autograder.sessions.local import LocalSession

KINDS = ("LIBRARY", "FRAMEWORKS")
NOTHING = "def {}(*_, **__):\n    return None"  # where an impostor is refused when its cell runs, this is left


@cache
def impostors(slug: str) -> dict[str, dict[str, str]]:
    path = Path(__file__).parent / "impostors" / f"{slug}.py"
    assert path.exists(), f"write {path}: what hpcdl and torch would answer, as `autograder new` writes it"
    return runpy.run_path(str(path))


def answered(slug: str, kind: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The lab's cells with its solutions, and after them the impostors' answers; the exercises that these answer."""
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    answers = impostors(slug)[kind]
    for name, code in answers.items():
        given = [function for function in exercises.load(slug).exercises[name].functions if binds(code, function)]
        cells += [(f"before {function}", NOTHING.format(function)) for function in given]
        cells.append((f"impostor {name}", code))
    return cells, list(answers)


def binds(code: str, name: str) -> bool:
    return bool(re.search(rf"^(?:def|class) {name}\b|^{name} =|\bimport {name}$|\bas {name}$", code, re.MULTILINE))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slug", exercises.LABS)
def test_every_exercise_has_an_impostor_or_a_reason(slug, kind):
    reasons = impostors(slug).get(f"NOT_IN_{kind}", {})
    assert {*impostors(slug)[kind], *reasons} == set(exercises.load(slug).exercises)
    assert not {*impostors(slug)[kind]} & {*reasons}
    assert all(reasons.values())


@pytest.mark.each_lab(turn=(2, 6))
@pytest.mark.parametrize("slug", exercises.LABS)
@pytest.mark.parametrize("kind", KINDS)
def test_in_grading_impostors_have_no_points_and_are_flagged(slug, kind, zygote):
    cells, names = answered(slug, kind)
    result = grade_notebook(Notebook(cells, []), exercises.load(slug), zygote, "impostor", selfcheck.SECRET)
    judge(exercises.load(slug), result.exercises, names)


@pytest.mark.each_lab("collectives", others="long")  # as in grading, without the walls
@pytest.mark.parametrize("slug", exercises.LABS)
@pytest.mark.parametrize("kind", KINDS)
def test_in_a_notebook_they_have_none_either(slug, kind):
    cells, names = answered(slug, kind)
    lab, namespace = exercises.load(slug), {}
    for label, code in source.needed(cells, lab.functions)[0]:
        exec(compile(code, label, "exec"), namespace)
    found = [
        run.run_exercise(lab.exercises[name], LocalSession(namespace), seeds(b"", ""), hidden=False) for name in names
    ]
    judge(lab, found, names)


def judge(lab, results, names) -> None:
    """No points and a flag for the exercises of these `names`; no flag for the others, unless they call an impostor."""
    kept = {result.name: result.points for result in results if result.name in names and result.points}
    unflagged = [result.name for result in results if result.name in names and not result.forbidden]
    alone = {name for name, each in lab.exercises.items() if not {name, *follow.used(lab, each)} & {*names}}
    accused = {r.name: r.forbidden for r in results if r.name in alone and r.forbidden}
    shown = [(r.name, c.name, c.status, c.kind, c.message) for r in results for c in r.checks if r.name in names]
    assert (kept, unflagged, accused) == ({}, [], {}), "\n".join(map(str, shown))
