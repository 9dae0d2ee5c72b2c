"""Shorter limits after a submission's first time-out: an endless loop costs one limit, not one per exercise.

Later checks get part of their limit, but at least fifty times the reference's time: correct but slow code keeps its
points. If the reference is not available, every check keeps its limit.
"""

from autograder.authoring import Check, Exercise, Lab
from autograder.sessions.remote import RemoteSession
from autograder.walls import scratch
from autograder.walls.zygote import Zygote

from . import reference
from .run import run_exercise
from .seeds import seeds

GENEROUS = 50  # times the reference's seconds
PARTS = (0.1, 0.25, 0.5)  # of a check's limit; only a few values, so that a busy machine gives the same limits

_measured: dict[str, dict[str, float]] = {}  # by lab, for the lifetime of this process


def limit(zygote: Zygote, exercise: Exercise, check: Check) -> float:
    """Return the seconds that `check` may take in a submission that has timed out before."""
    took = reference_seconds(exercise.lab, zygote).get(f"{exercise.name}.{check.name}")
    if took is None:
        return check.seconds
    enough = (part * check.seconds for part in PARTS if part * check.seconds >= GENEROUS * took)
    return next(enough, check.seconds)


def reference_seconds(lab: Lab, zygote: Zygote) -> dict[str, float]:
    """Return the reference's seconds for each check, by "exercise.check"; measured on first use."""
    if lab.slug not in _measured:
        _measured[lab.slug] = _measure(lab, zygote)
    return _measured[lab.slug]


def _measure(lab: Lab, zygote: Zygote) -> dict[str, float]:
    if not (statements := reference.statements(lab.slug, lab.functions)):
        return {}
    zygote.preload_lab(lab.slow_modules, lab.closed)
    found: dict[str, float] = {}
    with scratch.Folder() as folder, RemoteSession(zygote, statements, folder) as session:
        for exercise in lab.exercises.values():
            took = _seconds(exercise, session)
            if any(GENEROUS * took[check.name] > PARTS[0] * check.seconds for check in exercise.checks.values()):
                again = _seconds(exercise, session)  # the first time warms up
                took = {name: min(seconds, again[name]) for name, seconds in took.items()}
            found |= {f"{exercise.name}.{name}": seconds for name, seconds in took.items()}
    return found


def _seconds(exercise: Exercise, session: RemoteSession) -> dict[str, float]:
    """Return the seconds of each check of the reference, by name."""
    result = run_exercise(exercise, session, seeds(b"", "reference"))
    return {check.name: check.seconds for check in result.checks}
