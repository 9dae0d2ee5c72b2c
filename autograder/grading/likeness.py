"""Find answers that resemble each other, the lab's solution, or the library: reasons for a person to look.

It compares the shapes of an answer's parts (`inside.fingerprint`), which do not depend on names, layout or comments,
and mostly survive reordering. Rare parts count more, so code that was handed out, or that everybody writes, counts
little (inverse document frequency: Sparck Jones 1972).
"""

import ast
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import hpcdl
from autograder import exercises
from autograder.inside import fingerprint
from autograder.results import LabResult

from . import reference

THRESHOLD = 0.8  # show answers from this similarity on
RARE = 50  # compare answers that share a part with at most this many owners
OWN_SOLUTION = "the lab's own solution"


class Likeness(NamedTuple):
    """`share` of the code of `who` for an exercise is also in `where`: another student's answer, or a place."""

    share: float
    exercise: str
    who: str
    where: str


def alike(found: list[LabResult], threshold: float = THRESHOLD) -> list[Likeness]:
    """Return pairs of students, and of a student and a place, with at least this share in common, the most similar
    first.

    Answers with equal fingerprints are not included: `instructor.identical` groups them.
    """
    answers: dict[str, dict[str, Counter]] = defaultdict(dict)
    prints: dict[tuple[str, str], str] = {}
    for result in found:
        for exercise in result.exercises:
            if exercise.shapes:
                answers[exercise.id][result.student] = Counter(exercise.shapes)
                prints[exercise.id, result.student] = exercise.fingerprint
    likely = [like for name, of in answers.items() for like in _of_exercise(name, of, prints, threshold)]
    return sorted(likely, key=lambda like: (-like.share, like))


def grouped(likely: list[Likeness]) -> list[tuple[int, str, str, str]]:
    """Return rows (share in percent, exercise, students, where else); students equally similar to one place share a
    row."""
    rows = defaultdict(list)
    for like in likely:
        rows[-round(100 * like.share), like.exercise, like.where].append(like.who)
    return [(-share, exercise, ", ".join(who), where) for (share, exercise, where), who in sorted(rows.items())]


def _of_exercise(name: str, answers: dict[str, Counter], prints: dict, threshold: float) -> Iterator[Likeness]:
    places = {place: shapes for place, shapes in _places(name).items() if shapes}
    holders = Counter(shape for shapes in (*answers.values(), *places.values()) for shape in shapes)
    everybody = len(answers) + len(places) + 1

    def weight(shapes: Counter) -> float:
        return sum(count * math.log(everybody / holders[shape]) for shape, count in shapes.items())

    for one, other in _candidates(answers, holders):
        common = 2 * weight(answers[one] & answers[other]) / (weight(answers[one]) + weight(answers[other]))
        if common >= threshold and prints[name, one] != prints[name, other]:
            yield Likeness(common, name, one, other)
    for student, shapes in answers.items():
        share, place = max((weight(shapes & of) / weight(shapes), place) for place, of in places.items())
        if share >= threshold:
            yield Likeness(share, name, student, place)


def _candidates(answers: dict[str, Counter], holders: Counter) -> list[tuple[str, str]]:
    """Return students who share a rare part, in the order of their names."""
    having = defaultdict(list)
    for student, shapes in sorted(answers.items()):
        for shape in shapes:
            if 1 < holders[shape] <= RARE:
                having[shape].append(student)
    return sorted({pair for students in having.values() for pair in combinations(students, 2)})


def _places(exercise: str) -> dict[str, Counter]:
    """Return where an answer may come from: the lab's solution, if its source is available, and the library's
    functions."""
    slug, _, name = exercise.partition(".")
    known = dict(_library())
    if slug in exercises.LABS:
        functions = exercises.load(slug).exercises[name].functions
        solution = reference.statements(slug, list(functions))
        known[OWN_SOLUTION] = Counter(fingerprint.shapes(solution, functions))
    return known


@cache
def _library() -> dict[str, Counter]:
    """Return `hpcdl`'s functions and classes by place, only long ones."""
    root = Path(hpcdl.__file__).parent
    return {
        f"{file.relative_to(root.parent)}: {node.name}": Counter(shapes)
        for file in sorted(root.rglob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if (shapes := fingerprint.shapes_of([node]))
    }
