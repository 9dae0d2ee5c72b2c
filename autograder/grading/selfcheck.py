"""Prove a lab's checks before they grade anyone: the reference is right, mistakes are caught, no work earns nothing."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autograder import exercises, feedback
from autograder.authoring import BANK, Lab, WrongAnswer
from autograder.authors import build
from autograder.inside import forbidden, source
from autograder.inside.location import places_of_ours
from autograder.inside.notebook import Notebook
from autograder.results import LabResult
from autograder.walls.zygote import Zygote

from . import lazy
from .grade import grade_notebook

SECRET = b"selfcheck"
LAZY = 12  # lazy answers tried per exercise, out of some thousands
WRONG = "wrong answer"  # the label of its cell
NAMES = "name an operator that computes (aten::convolution, not aten::conv2d, which calls it) or a Python function"


@dataclass
class Proof:
    """One proof of the self-check and its problems; without problems it holds."""

    title: str
    problems: list[str]


def selfcheck(slug: str, zygote: Zygote, sample: int = LAZY, each: int = 1) -> Iterator[Proof]:
    """Yield the proofs for one lab: reference, blank, a `sample` of lazy answers per exercise, and every n-th wrong
    answer."""
    lab = exercises.load(slug)
    solved, student = (cells_of(make(slug)) for make in (build.solved, build.student))
    yield Proof("points", [] if lab.points == 100 else [f"the lab has {lab.points:g} points, not 100"])
    yield from (Proof(e.id, problems) for e in lab.exercises.values() if (problems := declared(e)))
    reference = run(lab, solved, zygote, mpi=True)
    yield Proof("; ".join(["the reference has all points", *reference.notes]), losses(reference))
    yield Proof("blank has none, and each check says so", blank(run(lab, student, zygote)))
    yield Proof("lazy answers have none", lazy.problems(slug, sample))
    for answer in bank(slug)[::each]:
        cells = [*solved, (WRONG, answer.source)]
        result = run(reached(lab, cells), cells, zygote)
        yield Proof(f"{answer.exercise}: {answer.mistake}", judge(answer, result))


def reached(lab: Lab, cells: list[tuple[str, str]]) -> Lab:
    """Return the exercises whose functions use the wrong answer. The others run the reference's code, which has
    passed."""
    part = Lab(lab.slug, number=lab.number, title=lab.title, slow_modules=lab.slow_modules)
    for name, exercise in lab.exercises.items():
        statements, _ = source.needed(cells, list(exercise.functions))
        if any(label.partition(":")[0] == WRONG for label, _ in statements):
            part.exercises[name] = exercise
    return part


def bank(slug: str) -> list[WrongAnswer]:
    """Return the wrong answers of a lab, in the order of its exercises; empty if it has no bank yet."""
    try:
        importlib.import_module(f"autograder.bank.{slug}")
    except ModuleNotFoundError as error:
        if error.name != f"autograder.bank.{slug}":
            raise
    return sorted((answer for answer in BANK if answer.exercise.partition(".")[0] == slug), key=place_in_the_course)


def place_in_the_course(answer: WrongAnswer) -> int:
    """Return the position of its exercise in the lab; an unknown exercise, which `judge` reports, comes last."""
    slug, _, name = answer.exercise.partition(".")
    names = list(exercises.load(slug).exercises)
    return names.index(name) if name in names else len(names)


def cells_of(content: Any) -> list[tuple[str, str]]:
    return [(f"cell {i}", cell.source) for i, cell in enumerate(content.cells, start=1) if cell.cell_type == "code"]


def run(lab: Lab, cells: list[tuple[str, str]], zygote: Zygote, mpi: bool = False) -> LabResult:
    return grade_notebook(Notebook(cells, []), lab, zygote, "selfcheck", SECRET, mpi)


def declared(exercise: Any) -> list[str]:
    points = sum(check.points for check in exercise.checks.values())
    problems = [] if points == exercise.points else [f"its checks have {points:g} points, not {exercise.points:g}"]
    return problems + [f"forbid={name!r} forbids nothing: {NAMES}" for name in forbidden.unknown(exercise.forbid)]


def losses(result: LabResult) -> list[str]:
    return [f"{e.name}.{c.name}: {_said(c)}" for e in result.exercises for c in e.checks if not c.passed]


def blank(result: LabResult) -> list[str]:
    checks = [(e, c) for e in result.exercises for c in e.checks]
    return [f"{e.name}.{c.name}: {c.status}: {_said(c)}" for e, c in checks if c.status not in ("not_done", "skipped")]


def judge(answer: WrongAnswer, result: LabResult) -> list[str]:
    """Return how the result differs from the expected lost points and messages."""
    name = answer.exercise.partition(".")[2]
    lost = {(e.name, c.name) for e in result.exercises for c in e.checks if not c.passed}
    expected = {tuple(f"{name}.{check}".split(".")[-2:]) for check in answer.fails}  # "check" or "exercise.check"
    problems = [f"{e}.{c} should not pass, and does" for e, c in sorted(expected - lost)]
    problems += [f"{e}.{c} should pass, and does not" for e, c in sorted(lost - expected)]
    shown = "\n".join(feedback.text(e) for e in result.exercises if not e.passed)
    if answer.says not in shown:
        problems.append(f"the feedback does not say {answer.says!r}; it says:\n{shown}")
    if found := places_of_ours(shown):
        problems.append(f"the feedback names places in our files or on this machine: {found}")
    problems += [
        f"{e.name} names {len(named)} causes: {' || '.join(named)}"
        for e in result.exercises
        if len(named := feedback.causes(e)) > answer.causes
    ]
    bugs = [c for e in result.exercises for c in e.checks if c.kind == "check"]
    return problems + [f"{c.name} fails with an error of its own:\n{c.detail}" for c in bugs]


def _said(check) -> str:
    return " ".join(feedback.sentences(check)) + (f"\n{check.detail}" if check.detail else "")
