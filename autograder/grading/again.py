"""A second look: a statement that was left out may have done what an answer needs.

An exercise that fails although it is written is checked again, in a worker that has also run the statements that
mention an object it uses. The better result counts, with a note.
"""

from autograder.authoring import Lab
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
    lab: Lab, found: list[ExerciseResult], content: Cells, run: Cells, zygote: Zygote, seed_of: Seeds, limit: Limit
) -> None:
    """Replace results in `found` by better ones. `content` holds the notebook's cells, `run` the statements that
    ran."""
    failed = [i for i, result in enumerate(found) if result.status == "failed" and not result.ran_out]
    if not failed:
        return
    with scratch.Folder() as folder, ParsingSession(zygote, folder) as session:
        wider = {i: session.wider(content, lab.exercises[found[i].name].functions) for i in failed}
    first = [cell for cell in run if cell[0] == REFERENCE]  # it writes the files next to the notebook
    have = {label for label, _ in run}
    for i, cells in wider.items():
        more = [label for label, _ in cells if label not in have]
        if more:
            again = repeat(lab.exercises[found[i].name], first + cells, zygote, seed_of, limit)
            if again.points > found[i].points:
                again.forbidden, again.note = found[i].forbidden or again.forbidden, said(more)
                found[i] = again


def said(labels: list[str]) -> str:
    """Return the sentence about the cells whose statements ran in the second look."""
    names = list(dict.fromkeys(label.partition(":")[0] for label in labels))
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"This failed without {shown}, which mentions a value it uses, and was checked again with it: that counts."
