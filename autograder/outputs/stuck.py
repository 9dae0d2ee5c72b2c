"""Where a class got stuck, without names: how hard each exercise was, and the most common mistakes."""

import math
from collections import Counter
from dataclasses import dataclass

from autograder.feedback import narrowed, without_numbers
from autograder.results import ExerciseResult, LabResult

from .instructor import ExerciseOverview, exercise_overviews
from .load import for_student
from .named import counted

SHOWN = 5  # mistakes of an exercise
LEAST = 2  # fewest students to show a mistake: a single student's mistake is almost a name


@dataclass
class Stuck:
    """One exercise: its numbers over the class, how many tried it, and its named mistakes with their counts."""

    overview: ExerciseOverview
    students: int
    solved: int
    untouched: int
    mistakes: list[tuple[str, int]]

    @property
    def hint(self) -> str:
        """Say what the numbers suggest to a teacher; empty if they suggest nothing."""
        tried = self.students - self.untouched
        if self.untouched > self.students / 2:
            return "Most did not begin it."
        if tried and self.solved < tried / 3:
            return "Few of those who began it solved it: take it up in the lecture."
        if self.students >= 10 and self.highest_discrimination < 0.1:
            return "It does not separate strong students from weak ones: look at its text and its checks."
        return ""

    @property
    def highest_discrimination(self) -> float:
        """Return the upper end of its 95 % interval, by Fisher's z (Biometrika 1915): few students say little."""
        found = self.overview.discrimination
        if found is None or abs(found) == 1:
            return 1.0 if found is None else found
        return math.tanh(math.atanh(found) + 1.96 / math.sqrt(self.students - 3))


def exercises(found: list[LabResult]) -> list[Stuck]:
    """Return each exercise, the hardest of each lab first, with the mistakes that `autograder grade` named."""
    graded = [for_student(result) for result in found if result.status == "graded"]
    shown = [_exercise(overview, graded) for overview in exercise_overviews(graded)]
    return sorted(shown, key=lambda stuck: (stuck.overview.id.partition(".")[0], stuck.overview.mean))


def named_mistakes(own: list[ExerciseResult]) -> list[str]:
    """Return the mistakes that checks named, each once per student."""
    by_student = ({without_numbers(check.mistake): check.mistake for check in narrowed(each)} for each in own)
    return [said for mistakes in by_student for said in mistakes.values() if said]


def _exercise(overview: ExerciseOverview, graded: list[LabResult]) -> Stuck:
    own = [exercise for result in graded for exercise in result.exercises if exercise.id == overview.id]
    status = Counter(exercise.status for exercise in own)
    named = named_mistakes(own)
    common = [(said, count) for said, count, _ in counted(named)[:SHOWN] if count >= min(LEAST, len(own))]
    return Stuck(overview, len(own), status["passed"], status["not_done"], common)
