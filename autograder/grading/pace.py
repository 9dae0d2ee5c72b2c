"""What a check may take once a submission has run out of time: a loop costs one limit, not one for each exercise.

Later checks get a part of their limit, and whatever else fifty times what the reference takes: code that is right and
slow keeps its points. Where the reference is not at hand every check keeps its limit.
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
PARTS = (0.1, 0.25, 0.5)  # of a check's limit; few, so that a busy machine gives the same limits

_measured: dict[str, dict[str, float]] = {}  # by lab, for as long as this process grades


def limit(zygote: Zygote, exercise: Exercise, check: Check) -> float:
    """The seconds that `check` may take in a submission that has run out of time before."""
    took = reference_seconds(exercise.lab, zygote).get(f"{exercise.name}.{check.name}")
    if took is None:
        return check.seconds
    enough = (part * check.seconds for part in PARTS if part * check.seconds >= GENEROUS * took)
    return next(enough, check.seconds)


def reference_seconds(lab: Lab, zygote: Zygote) -> dict[str, float]:
    """Seconds that the reference takes for each check, by "exercise.check"; measured when they are first asked for."""
    if lab.slug not in _measured:
        _measured[lab.slug] = _measure(lab, zygote)
    return _measured[lab.slug]


def _measure(lab: Lab, zygote: Zygote) -> dict[str, float]:
    if not (statements := reference.statements(lab.slug, lab.functions)):
        return {}
    zygote.bring(lab.brings)
    with scratch.Folder() as folder, RemoteSession(zygote, statements, folder) as session:
        rounds = [run_lab(lab, session, seeds(b"", "reference")) for _ in range(2)]  # the first warms up
    found: dict[str, float] = {}
    for result in itertools.chain(*rounds):
        for check in result.checks:
            name = f"{result.name}.{check.name}"
            found[name] = min(check.seconds, found.get(name, check.seconds))
    return found
