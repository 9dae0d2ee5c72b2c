"""What the instructor's page shows of a whole class: numbers, common mistakes, and things for a person to look at."""

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from autograder import feedback
from autograder.results import CheckResult, LabResult

from . import likeness

COMMON = 3  # of each check, this many of the most common mistakes are shown


@dataclass
class CheckOverview:
    """One check over the class: how many passed it, and what those who did not were told most."""

    lab: str
    exercise: str
    title: str
    points: float
    statuses: Counter = field(default_factory=Counter)
    mistakes: Counter = field(default_factory=Counter)  # sentence -> how many
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # sentence -> facts of the first

    @property
    def reached(self) -> int:
        """Students whose code the check ran on."""
        return self.statuses["passed"] + self.statuses["failed"]

    @property
    def share(self) -> float:
        """The share of them that passed; 1 where nobody reached it."""
        return self.statuses["passed"] / self.reached if self.reached else 1.0

    def common(self) -> list[tuple[str, int, list[tuple[str, str]]]]:
        return [(said, n, self.examples[said]) for said, n in self.mistakes.most_common(COMMON)]

    def add(self, check: CheckResult) -> None:
        self.statuses[check.status] += 1
        if check.status == "failed":
            said = next(iter(feedback.sentences(check)), check.kind or "no reason given")
            self.mistakes[said] += 1
            self.examples.setdefault(said, feedback.facts(check))


class Overview:
    """A class at a glance; code is shown from a share `alike` on that stands elsewhere, too."""

    def __init__(self, found: list[LabResult], alike: float = likeness.THRESHOLD):
        self.results = found
        self.graded = [result for result in found if result.status == "graded"]
        self.ungradable = [result for result in found if result.status != "graded"]
        self.isolation = sorted({result.isolation for result in self.graded if result.isolation})
        self.checks = sorted(_checks(self.graded), key=lambda check: (check.lab, check.share))
        self.flags = flags(self.graded)
        self.alike = likeness.grouped(likeness.alike(self.graded, alike))
        self.threshold = alike

    @property
    def medians(self) -> list[tuple[str, int, float, float]]:
        """(lab, submissions, median score, maximum) of each lab."""
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
    """(whom, what) of what a person should look at. None of it changes a score."""
    raised = []
    for result in found:
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
    """Every note once, with all whose results have it."""
    whose = defaultdict(list)
    for result in found:
        for note in result.notes:
            whose[f"{result.lab}: {note}"].append(result.student)
    return [(", ".join(students), note) for note, students in whose.items()]


def identical(found: list[LabResult]) -> list[tuple[str, str]]:
    """Groups whose code is the same but for names, comments and layout; those with the most exercises first."""
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
        (", ".join(students), f"the same code, but for names and layout, in {', '.join(ids)}")
        for students, ids in longest
    ]
