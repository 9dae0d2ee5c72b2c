"""Commands for the next lecture, without names: `autograder report` and `autograder guesses`."""

from pathlib import Path
from typing import Annotated

import typer

from hpcdl.commands import end, say

STYLE = """
:root { color-scheme: light dark; }
body { background: Canvas; color: CanvasText; font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; } ul { margin: .3rem 0; padding-left: 1.2rem; }
table { border-collapse: collapse; width: 100%; } meter { width: 5rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; overflow-wrap: anywhere;
  border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
td:first-child { min-width: 10rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 700px) {
  table, tbody, tr, td { display: block; } th { display: none; } .number { text-align: left; }
  td[data-name]::before { content: attr(data-name) ": "; }
}
"""


def report(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="The folder that `autograder grade` wrote.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("stuck.html"),
    lab: Annotated[str | None, typer.Option(help="The results of this lab alone.")] = None,
) -> None:
    """Show where the class got stuck: difficulty, discrimination and the mistakes named most, without names."""
    from autograder.grading.store import write_text

    from . import html, load, stuck

    try:
        found = load.results(folder, lab)
    except load.ResultError as error:
        end(str(error))
    shown = stuck.exercises(found)
    students = sum(result.status == "graded" for result in found)
    write_text(out, html.rendered("stuck.html", exercises=shown, students=students, style=STYLE))
    say(f"Wrote {out}: {len(shown)} exercises of {students} results.")


def guesses(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Students' .guesses.jsonl, below it.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("guesses.html"),
    least: Annotated[int | None, typer.Option(min=1, help="Answers that a question must have.")] = None,
) -> None:
    """Draw what the class guessed as one page, without names, for the next lecture."""
    from autograder.grading.store import write_text

    from . import class_guesses, html, load

    least = least or class_guesses.LEAST
    try:
        questions = class_guesses.collected(folder, least)
        students = len(class_guesses.files(folder))
    except load.ResultError as error:
        end(str(error))
    groups = class_guesses.by_lab(questions)
    shown = {"groups": groups, "students": students, "least": least, "style": STYLE}
    write_text(out, html.rendered("class_guesses.html", **shown))
    say(f"Wrote {out}: {len(questions)} questions of {students} students.")


def designs(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Students' .design.json, below it.")],
) -> None:
    """Print the class's own pipeline schedules as a table, the smallest bubble first."""
    from hpcdl import designs

    found = []
    for path in sorted(folder.rglob("*design.json")):
        try:
            found.append(designs.read(path))
        except designs.DesignError as error:
            say(f"Left out: {error}.")
    if not found:
        end(f"there are no designs in {folder}; students hand them in with `hpcdl submit --design`")
    for line in designs.table(found):
        say(line)
