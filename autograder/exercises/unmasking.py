"""The exercise in which the student examines programs: inputs that unmask four impostors among eight."""

from autograder.authoring import Exercise
from autograder.checks import impostors

MINUTES = 8


def examines(line_up: impostors.LineUp, *, extra: bool = False) -> Exercise:
    """The exercise of ten points whose answer, `line_up.name()`, is a list of inputs."""
    exercise = Exercise(line_up.name, points=10, minutes=MINUTES, extra=extra)

    @exercise.check(points=2)
    def spares_the_right(student, rng):
        "Every input keeps to the rules and accuses no right program, and one unmasks an impostor."
        impostors.spares_the_right(line_up, getattr(student, line_up.name)())

    @exercise.check(points=8)
    def unmasks_the_wrong(student, rng):
        "Four impostors are unmasked, two points each."
        impostors.unmasks_the_wrong(line_up, getattr(student, line_up.name)())

    return exercise
