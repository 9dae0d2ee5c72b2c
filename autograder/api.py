"""`check("gradient_descent.mse_grad")`: what a notebook calls after each exercise."""

import contextlib
import difflib
import io
import sys

from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession

from . import exercises
from .authoring import Exercise, Lab
from .feedback import Feedback
from .results import ExerciseResult

SEEDS = seeds(b"notebook", "")  # the same inputs at every press of the button, so that a failure can be followed
PRINTED = 2000  # characters of a student's own prints that are shown

latest: dict[str, float] = {}  # exercise id -> points of its last check in this kernel
best: dict[str, float] = {}


class UnknownExerciseError(ValueError):
    """There is no exercise or lab of that name; the message has the nearest."""

    def _render_traceback_(self) -> list[str]:  # IPython: one line instead of our frames
        return [str(self)]


def check(name: str) -> None:
    """Check the exercise `"slug.exercise"` (or every one of the lab `"slug"`) with the functions defined here.

    Shows what passed, and for what did not: what was called, what came back, what was expected and why.
    """
    namespace = sys._getframe(1).f_globals
    for exercise in find(name):
        _show(feedback(exercise, namespace))


def feedback(exercise: Exercise, namespace: dict) -> Feedback:
    """Check one exercise against the functions in `namespace` and remember its points."""
    printed = _Capped()
    with contextlib.redirect_stdout(printed):
        result = run_exercise(exercise, LocalSession(namespace), SEEDS, hidden=False)
    note = _remember(result)
    return Feedback(result, total(exercise.lab), printed.getvalue(), note)


def total(lab: Lab) -> str:
    """`Lab total so far: 35 / 100`, of the exercises checked in this kernel."""
    points = sum(latest.get(exercise.id, 0.0) for exercise in lab.exercises.values())
    return f"Lab total so far: {points:g} / {lab.points:g}"


def find(name: str) -> list[Exercise]:
    """The exercises meant by `slug.exercise`, `slug.function` or `slug`; UnknownExerciseError names the nearest."""
    slug, _, rest = name.partition(".")
    if slug in exercises.LABS:
        lab = exercises.load(slug)
        if not rest:
            return list(lab.exercises.values())
        if exercise := lab.find(rest):
            return [exercise]
    known = [e.id for s in exercises.LABS for e in exercises.load(s).exercises.values()]
    near = difflib.get_close_matches(name, [*known, *exercises.LABS], n=3, cutoff=0.5)
    near = near or [known_id for known_id in known if rest and rest in known_id] or list(exercises.LABS)
    raise UnknownExerciseError(f"There is no exercise {name!r}. Did you mean {' or '.join(map(repr, near))}?")


def _remember(result: ExerciseResult) -> str:
    latest[result.id] = result.points
    best[result.id] = max(result.points, best.get(result.id, 0.0))
    if best[result.id] > result.points:
        return f"An earlier version of yours had {best[result.id]:g} points; the one in the notebook counts."
    return ""


def _show(shown: Feedback) -> None:
    with contextlib.suppress(ImportError):
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            display(shown)
            return
    print(repr(shown))


class _Capped(io.StringIO):
    """Keeps the first characters that are written to it and drops the rest."""

    def write(self, text: str) -> int:
        room = PRINTED - self.tell()
        if room > 0:
            super().write(text[:room] + ("\n…" if len(text) > room else ""))
        return len(text)
