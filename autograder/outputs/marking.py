"""Commands for written answers that a person marks: `autograder written` and `autograder marks`."""

from pathlib import Path
from typing import Annotated

import typer

from hpcdl.commands import end, say

MOST_SAID = 10  # sentences about what is left out


def written(
    submissions: Annotated[Path, typer.Argument(exists=True, help="What `autograder grade` is given.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page to write.")] = Path("written.html"),
    lab: Annotated[str | None, typer.Option(help="The answers of this lab alone.")] = None,
    rubric: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A sheet of question, points (default: the report's rubric)."),
    ] = None,
    names: Annotated[bool, typer.Option(help="Show who wrote an answer.")] = True,
) -> None:
    """Write a page on which you mark the decisions of students' reports; it works offline and exports marks.csv.

    Continue with `autograder marks marks.csv RESULTS`.
    """
    from autograder.grading.store import write_text

    from . import load
    from . import written as writing

    try:
        questions = writing.rubric(rubric)
        answers, left = writing.collected(submissions, lab)
    except load.ResultError as error:
        end(str(error))
    write_text(out, writing.page(answers, questions, names))
    say(f"Wrote {out}: {counted(len(answers), 'answer')}. Open it in a browser, mark, and export marks.csv.")
    _say_left(left)


def marks(
    sheet: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The marks.csv that the page exported.")],
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The results.")],
) -> None:
    """Enter marks for written answers: rows in RESULTS/adjustments.csv, which all exports follow.

    Each marked lab is worth the rubric's points more, for all students. Marks entered again replace the earlier ones.
    """
    from . import load
    from . import written as writing

    try:
        entered = writing.enter(load.results(folder), sheet, folder)
    except load.ResultError as error:
        end(str(error))
    say(f"Wrote {counted(len(entered.rows), 'row')} into {folder / 'adjustments.csv'}.")
    _say_left(entered.left)


def counted(number: int, thing: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def _say_left(left: list[str]) -> None:
    for sentence in left[:MOST_SAID]:
        say(f"  left out: {sentence}")
    if len(left) > MOST_SAID:
        say(f"  left out: {len(left) - MOST_SAID} more")
