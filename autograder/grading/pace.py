"""Shorter limits after a submission's first time-out: an endless loop costs one limit, not one per exercise.

Later checks get part of their limit, but at least fifty times the reference's time: correct but slow code keeps its
points. If the reference is not available, every check keeps its limit.
"""

import itertools

from autograder.authoring import Check, Exercise, Lab
from autograder.sessions.remote import RemoteSession
from autograder.walls import scratch
from autograder.walls.zygote import Zygote

from . import reference
from .run import run_lab
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
    zygote.bring(lab.brings, lab.closed)
    with scratch.Folder() as folder, RemoteSession(zygote, statements, folder) as session:
        rounds = [run_lab(lab, session, seeds(b"", "reference")) for _ in range(2)]  # the first warms up
    found: dict[str, float] = {}
    for result in itertools.chain(*rounds):
        for check in result.checks:
            name = f"{result.name}.{check.name}"
            found[name] = min(check.seconds, found.get(name, check.seconds))
    return found
