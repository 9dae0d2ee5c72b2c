"""Reset exercises: restore the cell as it was in the published lab, and keep the student's code in a file next to the
notebook."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from hpcdl import guesses, labs
from hpcdl.files import write_whole
from hpcdl.guesses import Ledger
from hpcdl.moved import MOVED, now
from hpcdl.points import Checked, PointsRecord, file_in

GUESSES, SPEEDS = "guesses", "speeds"  # `hpcdl reset` clears these, so no exercise has such a name


class ResetError(ValueError):
    """The exercise cannot be reset: its name is unknown, or its blank cell is."""


@dataclass(frozen=True)
class Begun:
    """An exercise that was reset: its name, its notebook, and the file with the student's code, if any."""

    exercise: str
    notebook: Path
    kept: Path | None


def forget_guesses(folder: Path) -> int:
    """Clear the ledger of the labs in `folder`; return how many guesses it had."""
    ledger = Ledger(guesses.file_in(folder))
    count = len(ledger.guesses)
    ledger.reset()
    return count


def reset(exercise: str, folder: Path) -> Begun:
    """Restore the blank cell of `exercise` ("mse_grad" or "gradient_descent.mse_grad") in the labs of `folder`.

    The student's code goes to a new file next to the notebook first. Raises ResetError if the exercise is missing,
    appears twice, or its notebook does not know the blank cell.
    """
    found = _found(exercise, folder)
    if len(found) != 1:
        raise ResetError(_which(exercise, found, folder))
    ((path, name),) = found
    notebook = nbformat.read(path, as_version=4)
    (cell, *_) = [cell for cell in notebook.cells if _about(cell).get("exercise") == name]
    blank = _about(cell).get("blank")
    if not isinstance(blank, str):
        raise ResetError(f"{path} does not know the blank cell of {name}: take one from a new copy of the lab")
    short = name.partition(".")[2]
    if cell.source == blank:
        return Begun(short, path, None)
    kept = _keep(cell.source, path, short)
    cell.source, cell.outputs, cell.execution_count = blank, [], None
    write_whole(path, nbformat.writes(notebook) + "\n")
    PointsRecord(file_in(folder)).add(Checked(name, None))
    return Begun(short, path, kept)


def _found(exercise: str, folder: Path) -> list[tuple[Path, str]]:
    """Return the matching cells, old names included; of a renumbered lab only the newest notebook."""
    there = list(exercises(folder))
    found = [(path, name) for path, name in there if exercise in (name, name.partition(".")[2])]
    old = [name for name in MOVED if exercise in (name, name.partition(".")[2])]
    meant = {new for name in [*old, *(name for _, name in found)] for new in now(name)}
    newest = [(path, name) for path, name in there if name in meant and not labs.is_outdated(path)]
    return newest or found


def exercises(folder: Path) -> Iterator[tuple[Path, str]]:
    """Return the exercises of the labs in a folder, as (notebook, "slug.name"); files that are not notebooks have
    none."""
    for path in labs.notebooks(folder):
        try:
            cells = nbformat.read(path, as_version=4).cells
        except Exception:  # nbformat raises many kinds
            continue
        yield from ((path, name) for cell in cells if isinstance(name := _about(cell).get("exercise"), str))


def _about(cell: nbformat.NotebookNode) -> dict:
    about = cell.metadata.get("hpcdl", {})
    return about if isinstance(about, dict) else {}


def _which(exercise: str, found: list, folder: Path) -> str:
    if found:
        return f"{exercise} is there more than once: say which, {' or '.join(name for _, name in found)}"
    known = ", ".join(name.partition(".")[2] for _, name in exercises(folder))
    return f"there is no exercise {exercise!r} in {folder}; " + (f"there are {known}" if known else "there is no lab")


def _keep(code: str, notebook: Path, exercise: str) -> Path:
    """Save the student's code in a new file, without overwriting an earlier one."""
    number = 1
    while True:
        path = notebook.with_name(f"{notebook.stem}.{exercise}.{number}.py")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(code + "\n")
            return path
        except FileExistsError:
            number += 1
