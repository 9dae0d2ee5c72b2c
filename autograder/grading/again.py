"""A second look: a statement that was left out may have done what an answer needs, or one that ran may have spoiled it.

An exercise that fails although it is written is checked again, in a worker that has also run the statements that
mention an object it uses; before that without those that have not run in the notebook, because their cell had raised.
The best result counts, with a note.
"""

from autograder.authoring import Lab
from autograder.inside.notebook import Notebook
from autograder.inside.worker import REFERENCE
from autograder.results import ExerciseResult
from autograder.sessions.parsing import ParsingSession
from autograder.walls import scratch
from autograder.walls.zygote import Zygote

from .follow import repeat
from .run import Limit
from .seeds import Seeds

Cells = list[tuple[str, str]]  # label, source


def look_again(
    lab: Lab, found: list[ExerciseResult], content: Notebook, run: Cells, zygote: Zygote, seed_of: Seeds, limit: Limit
) -> None:
    """Replace results in `found` by better ones. `run` holds the statements of the notebook that ran."""
    failed = [i for i, result in enumerate(found) if result.status == "failed" and not result.ran_out]
    if not failed:
        return
    with scratch.Folder() as folder, ParsingSession(zygote, folder) as session:
        looks = {i: session.wider(content, lab.exercises[found[i].name].functions) for i in failed}
    first = [cell for cell in run if cell[0] == REFERENCE]  # it writes the files next to the notebook
    have = {label for label, _ in run}
    for i, (wider, live, places) in looks.items():
        more = [label for label, _ in wider if label not in have]
        for cells, note in ((live, said_live(places)), (wider if more else [], said(more))):
            if cells and not found[i].passed:
                again = repeat(lab.exercises[found[i].name], first + cells, zygote, seed_of, limit)
                if again.points > found[i].points:
                    again.forbidden, again.note = found[i].forbidden or again.forbidden, note
                    found[i] = again


def said_live(places: list[str]) -> str:
    """Return the sentence about the cells that have stopped."""
    return (
        f"Your notebook stopped in {_few(places)}, so this was checked again without what comes after it there: that "
        "counts."
    )


def said(labels: list[str]) -> str:
    """Return the sentence about the cells whose statements ran in the second look."""
    names = list(dict.fromkeys(label.partition(":")[0] for label in labels))
    what = f"{_few(names)}, which may change a value it uses"
    return f"This failed without {what}, and was checked again with it: that counts."


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
