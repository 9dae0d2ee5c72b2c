"""Follow-through: a wrong early function does not also cost the points of a later one that calls it.

An exercise that says `uses=("feedforward",)` and fails where `feedforward` has failed is checked again, with the
reference's `feedforward` instead of the student's. The better result counts, with a note.
"""

from functools import cache

from autograder.authoring import Exercise, Lab
from autograder.inside import source
from autograder.inside.location import REFERENCE
from autograder.results import ExerciseResult
from autograder.sessions.remote import RemoteSession
from autograder.walls import scratch
from autograder.walls.zygote import Zygote

from . import reference
from .run import Limit, full, run_exercise
from .seeds import Seeds


def follow_through(
    lab: Lab, found: list[ExerciseResult], cells: list, zygote: Zygote, seed_of: Seeds, limit: Limit = full
) -> None:
    """Regrade exercises that may have failed because of an earlier one, without that one's error."""
    results = {result.name: result for result in found}
    for index, exercise in enumerate(lab.exercises.values()):
        broken = [name for name in used(lab, exercise) if not results[name].passed]
        functions = [function for name in broken for function in lab.exercises[name].functions]
        if functions and may_change(found[index], functions):
            statements = replacement(lab.slug, tuple(functions), exercise.functions)
            again = repeat(exercise, [*cells, *statements], zygote, seed_of, limit)
            again.forbidden = found[index].forbidden or again.forbidden
            if again.points > found[index].points:
                again.note = said(broken)
                found[index] = results[exercise.name] = again  # correct if the earlier ones are: no longer broken


def used(lab: Lab, exercise: Exercise) -> list[str]:
    """Return the exercises that this one uses, directly or indirectly, each once."""
    every = [name for direct in exercise.uses for name in (*used(lab, lab.exercises[direct]), direct)]
    return list(dict.fromkeys(every))


def may_change(result: ExerciseResult, functions: list[str]) -> bool:
    """Return whether a repeat can help: it failed, and not because it is a stub itself."""
    stub = next((check.function for check in result.checks if check.status == "not_done"), "")
    return not result.passed and (result.status != "not_done" or stub in functions)


def repeat(exercise: Exercise, cells: list, zygote: Zygote, seed_of: Seeds, limit: Limit) -> ExerciseResult:
    """Repeat the exercise's checks on the same inputs, in a worker that has run `cells`."""
    with scratch.Folder() as folder, RemoteSession(zygote, cells, folder, opened=exercise.lab.opened) as session:
        return run_exercise(exercise, session, seed_of, limit)


@cache
def replacement(slug: str, functions: tuple[str, ...], keep: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the reference's statements that define `functions`, except `keep`, which stay the student's."""
    own, found = set(keep), reference.statements(slug, list(functions))
    return [(REFERENCE, code) for _, code in found if not own & source.defined_names([("", code)])]


def said(broken: list[str]) -> str:
    names = " and ".join(f"`{name}`" for name in broken)
    return f"Your {names} lost points, so this was checked again with the reference's in its place: that result counts."
