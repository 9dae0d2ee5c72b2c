"""Results of grading: plain data for feedback, grade sheets and the result file."""

from dataclasses import asdict, dataclass, field, fields
from typing import Literal

SCHEMA = "hpcdl.result/1"

Status = Literal["passed", "failed", "skipped", "not_done"]


@dataclass
class CheckResult:
    """The verdict on one check, with the reasons for the student."""

    name: str
    title: str
    max_points: float
    status: Status = "failed"
    kind: str = ""  # what stopped it: values, exception, timeout, ended, undefined, ...; "check" is our own bug
    message: str = ""
    mistake: str = ""
    call: str = ""
    got: str = ""
    expected: str = ""
    where: str = ""
    why: str = ""
    function: str = ""  # location in the student's code: function, line, source of the line
    line: int = 0
    source: str = ""
    via: str = ""  # the line of the called student's function, if it differs
    hidden: bool = False
    seed: int = 0
    seconds: float = 0.0  # seconds of the student's code
    asleep: bool = False  # it ran out of time and hardly used a processor
    undisturbed: bool = False  # it ran out of time although it had a processor to itself
    share: float = 0.0  # partial credit of a check that did not pass
    detail: str = ""  # for instructors only

    @property
    def points(self) -> float:
        return self.max_points if self.passed else round(self.max_points * min(max(self.share, 0.0), 1.0), 1)

    @property
    def passed(self) -> bool:
        return self.status == "passed"


@dataclass
class ExerciseResult:
    """The verdicts on an exercise's checks, all of them, in order."""

    id: str
    name: str
    max_points: float
    checks: list[CheckResult] = field(default_factory=list)
    fingerprint: str = ""  # hash of the code without names and layout; for instructors
    shapes: list[str] = field(default_factory=list)  # hashes of the code's parts
    note: str = ""  # how the result came about, if that needs explaining
    forbidden: list[str] = field(default_factory=list)  # calls that were made although the exercise forbids them

    @property
    def points(self) -> float:
        return sum(check.points for check in self.checks)

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def ran_out(self) -> bool:
        return any(check.kind == "timeout" for check in self.checks)

    @property
    def status(self) -> Status:
        if self.passed:
            return "passed"
        missing = any(check.status == "not_done" for check in self.checks)
        return "not_done" if missing and all(c.status in ("not_done", "skipped") for c in self.checks) else "failed"


@dataclass
class Adjustment:
    """Points that an instructor adds or subtracts, and why."""

    points: float
    reason: str


@dataclass
class LabResult:
    """A submission's result: `status` is graded, or ungradable with the reason as `message`."""

    student: str
    lab: str
    max_score: float
    exercises: list[ExerciseResult] = field(default_factory=list)
    status: Literal["graded", "ungradable"] = "graded"
    message: str = ""
    notes: list[str] = field(default_factory=list)
    isolation: str = ""
    seconds: float = 0.0
    retry: bool = False  # the grader itself failed: another run tries again
    adjustments: list[Adjustment] = field(default_factory=list)  # an instructor's; not in result files

    @property
    def score(self) -> float:
        points = sum(exercise.points for exercise in self.exercises)
        if not self.adjustments:
            return points
        return min(max(points + sum(adjustment.points for adjustment in self.adjustments), 0.0), self.max_score)

    def summary(self) -> str:
        """One line for the grade sheet: the reason, or which exercises are not complete."""
        open_ones = [e for e in self.exercises if not e.passed]
        if self.exercises and len(open_ones) == len(self.exercises) and all(e.status == "not_done" for e in open_ones):
            return "; ".join(filter(None, ["nothing done yet", self.message]))
        lost = [f"{e.name} {e.points:g}/{e.max_points:g}" for e in open_ones]
        return "; ".join(filter(None, [self.message, *lost]))

    def to_json(self) -> dict:
        """Return the result file's content."""
        assert 0 <= self.score <= self.max_score, f"a score of {self.score} of {self.max_score}"
        exercises = [{**_public(e), "points": e.points, "status": e.status} for e in self.exercises]
        for exercise, result in zip(exercises, self.exercises, strict=True):
            exercise["checks"] = [{**_public(c), "points": c.points} for c in result.checks]
        return {"schema": SCHEMA, **_public(self), "score": self.score, "exercises": exercises}

    @classmethod
    def from_json(cls, content: dict) -> "LabResult":
        """Return the result from a result file's content; raise ValueError for a different schema."""
        if content["schema"] != SCHEMA:
            raise ValueError(f"a result of schema {content['schema']!r}, not {SCHEMA!r}")
        result = _of(cls, content)
        result.exercises = [_of(ExerciseResult, exercise) for exercise in content["exercises"]]
        for exercise in result.exercises:
            exercise.checks = [_of(CheckResult, check) for check in exercise.checks]
        return result


def _of(cls, content: dict):
    """Create an instance from its fields, without derived points and states."""
    return cls(**{field.name: content[field.name] for field in fields(cls) if field.name in content})


def _public(result) -> dict:
    """Return its fields without empty ones."""
    kept = ("message", "lab", "max_points", "max_score")  # these are kept even if empty
    return {key: value for key, value in asdict(result).items() if key in kept or value not in ("", [], False)}
