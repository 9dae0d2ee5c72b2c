"""The instructor's page about a whole class: numbers, common mistakes, and things for a person to look at."""

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from autograder import feedback
from autograder.grading import likeness
from autograder.results import CheckResult, LabResult

from .adjustments import SHARED
from .named import counted

COMMON = 3  # shown mistakes per check


@dataclass
class CheckOverview:
    """One check over the class: how many passed it, and the most common messages to the others."""

    lab: str
    exercise: str
    title: str
    points: float
    statuses: Counter = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)  # to those who failed it
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # sentence -> facts of the first

    @property
    def reached(self) -> int:
        """Return how many students' code the check ran on."""
        return self.statuses["passed"] + self.statuses["failed"]

    @property
    def share(self) -> float:
        """Return the share of them that passed; 1 if no student reached it."""
        return self.statuses["passed"] / self.reached if self.reached else 1.0

    def common(self) -> list[tuple[str, int, list[tuple[str, str]]]]:
        return [(said, n, self.examples[first]) for said, n, first in counted(self.told)[:COMMON]]

    def add(self, check: CheckResult) -> None:
        self.statuses[check.status] += 1
        if check.status == "failed":
            said = next(iter(feedback.sentences(check)), check.kind or "no reason given")
            self.told.append(said)
            self.examples.setdefault(said, feedback.facts(check))


@dataclass
class ExerciseOverview:
    """One exercise over the class: the mean share of its points, how well it separates students, and its seconds.

    `discrimination` is the correlation of its points with those of the student's other exercises (the item-rest
    correlation of test theory): near 0, it measures something other than the rest, or nothing. It is None if all
    students have the same points. `seconds` is the median time of the checks for students who wrote it.
    """

    id: str
    points: float
    mean: float
    discrimination: float | None
    seconds: float


def exercise_overviews(found: list[LabResult]) -> list[ExerciseOverview]:
    """Return an overview of each exercise of each lab, in the order of the lab."""
    columns = defaultdict(list)
    for result in found:
        total = sum(exercise.points for exercise in result.exercises)
        for exercise in result.exercises:
            columns[exercise.id].append((exercise, total - exercise.points))
    return [_exercise_overview(name, column) for name, column in columns.items()]


def _exercise_overview(name: str, column: list) -> ExerciseOverview:
    points, rest = [exercise.points for exercise, _ in column], [others for _, others in column]
    varied = len(column) > 1 and min(points) < max(points) and min(rest) < max(rest)
    seconds = [sum(c.seconds for c in exercise.checks) for exercise, _ in column if exercise.status != "not_done"]
    most = column[0][0].max_points
    return ExerciseOverview(
        name,
        most,
        statistics.mean(points) / most if most else 0.0,
        statistics.correlation(points, rest) if varied else None,
        statistics.median(seconds) if seconds else 0.0,
    )


class Overview:
    """A class at a glance; code is listed if a share of at least `alike` also appears elsewhere."""

    def __init__(self, found: list[LabResult], alike: float = likeness.THRESHOLD):
        self.results = found
        self.graded = [result for result in found if result.status == "graded"]
        self.ungradable = [result for result in found if result.status != "graded"]
        self.isolation = sorted({result.isolation for result in self.graded if result.isolation})
        self.exercises = exercise_overviews(self.graded)
        self.checks = sorted(_checks(self.graded), key=lambda check: (check.lab, check.share))
        self.flags = flags(self.graded)
        self.alike = likeness.grouped(likeness.alike(self.graded, alike))
        self.threshold = alike

    @property
    def medians(self) -> list[tuple[str, int, float, float]]:
        """Return (lab, submissions, median score, maximum) for each lab."""
        by_lab = defaultdict(list)
        for result in self.graded:
            by_lab[result.lab].append(result)
        return [
            (lab, len(group), statistics.median(r.score for r in group), max(r.max_score for r in group))
            for lab, group in sorted(by_lab.items())
        ]


def _checks(found: list[LabResult]) -> list[CheckOverview]:
    seen: dict[tuple, CheckOverview] = {}
    for result in found:
        for exercise in result.exercises:
            for check in exercise.checks:
                key = (result.lab, exercise.name, check.name)
                seen.setdefault(key, CheckOverview(*key[:2], check.title, check.max_points)).add(check)
    return list(seen.values())


def flags(found: list[LabResult]) -> list[tuple[str, str]]:
    """Return (who, what) for everything a person should look at. None of it changes a score."""
    raised = []
    for result in found:
        if result.message and not result.message.startswith(SHARED):
            raised.append((result.student, f"{result.lab}: {result.message}"))
        for exercise in result.exercises:
            raised += [(result.student, f"{exercise.id}: a forbidden call, {call}") for call in exercise.forbidden]
        checks = [(exercise, check) for exercise in result.exercises for check in exercise.checks]
        for exercise, check in checks:
            if check.kind == "check":
                raised.append((result.student, f"{exercise.id}: the check “{check.title}” had an error of its own"))
            elif check.status == "failed" and not check.max_points:
                raised.append((result.student, f"{exercise.id}: “{check.title}” does not hold, and costs no points"))
    return raised + noted(found) + identical(found)


def noted(found: list[LabResult]) -> list[tuple[str, str]]:
    """Return every note once, with all students whose results have it."""
    whose = defaultdict(list)
    for result in found:
        for note in result.notes:
            whose[f"{result.lab}: {note}"].append(result.student)
    return [(", ".join(students), note) for note, students in whose.items()]


def identical(found: list[LabResult]) -> list[tuple[str, str]]:
    """Return groups with the same code except names, comments and layout; groups with the most exercises come first."""
    groups = defaultdict(set)
    for result in found:
        for exercise in result.exercises:
            if exercise.fingerprint:
                groups[exercise.id, exercise.fingerprint].add(result.student)
    shared = defaultdict(list)
    for (exercise_id, _), students in groups.items():
        if len(students) > 1:
            shared[tuple(sorted(students))].append(exercise_id)
    longest = sorted(shared.items(), key=lambda item: -len(item[1]))
    return [
        (", ".join(students), f"the same code, except for names and layout, in {', '.join(ids)}")
        for students, ids in longest
    ]
