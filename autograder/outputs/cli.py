"""`autograder export FORMAT RESULTS`: what `autograder grade` found, for students, instructors and course systems."""

from pathlib import Path
from typing import Annotated

import typer

from autograder import exercises
from hpcdl.commands import Commands, end, say

from . import load

app = typer.Typer(
    cls=Commands, help="Turn a results folder into feedback, reports and grade sheets.", no_args_is_help=True
)

Results = Annotated[
    Path, typer.Argument(exists=True, file_okay=False, help="The folder that `autograder grade` wrote.")
]
Lab = Annotated[str | None, typer.Option(help="The results of this lab alone.")]
Given = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The file that the course system exported.")]
Folder = Annotated[Path | None, typer.Option(help="Where to write (default: RESULTS/feedback).")]
File = Annotated[Path, typer.Option(help="The file to write.")]


@app.command()
def html(
    folder: Results,
    out: Folder = None,
    lab: Lab = None,
    alike: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Show code from this share on that stands elsewhere, too.")
    ] = 0.8,
) -> None:
    """A page of feedback for each student, and `instructor.html` in RESULTS for you."""
    from . import html

    found, out = _results(folder, lab), out or folder / "feedback"
    paths = html.write(found, out)
    html.write_text(folder / "instructor.html", html.instructor_page(found, alike))
    _said(f"Wrote {len(paths)} pages in {out} for students, and {folder / 'instructor.html'} for you.")


@app.command()
def markdown(folder: Results, out: Folder = None, lab: Lab = None) -> None:
    """Feedback for each student as Markdown."""
    from . import markdown

    out = out or folder / "feedback"
    _said(f"Wrote {len(markdown.write(_results(folder, lab), out))} files in {out}.")


@app.command()
def canvas(
    folder: Results,
    gradebook: Given,
    out: File = Path("canvas.csv"),
    column: Annotated[str | None, typer.Option(help="The assignment's column (default: the one that fits).")] = None,
    lab: Lab = None,
) -> None:
    """Fill in the gradebook that you exported from Canvas; import the file that this writes."""
    from . import canvas

    _filled(lambda found: canvas.fill(found, gradebook, out, column), folder, lab, out)


@app.command()
def moodle(
    folder: Results,
    worksheet: Given,
    out: File = Path("moodle.csv"),
    grade: Annotated[str, typer.Option(help="The name of the column of grades.")] = "Grade",
    comments: Annotated[str, typer.Option(help="The name of the column of comments.")] = "Feedback comments",
    lab: Lab = None,
) -> None:
    """Fill in the grading worksheet that you downloaded from Moodle; upload the file that this writes."""
    from . import moodle

    _filled(lambda found: moodle.fill(found, worksheet, out, grade, comments), folder, lab, out)


@app.command()
def junit(folder: Results, out: File = Path("junit.xml"), lab: Lab = None) -> None:
    """One report in JUnit's XML: a suite per student, a case per check."""
    from . import junit

    junit.write(_results(folder, lab), out)
    _said(f"Wrote {out}.")


@app.command()
def gradescope(
    lab: Annotated[str, typer.Argument(help="The lab that the assignment is.")],
    out: File = Path("gradescope.zip"),
    requirement: Annotated[str, typer.Option(help="What pip installs there: a wheel file, a URL, a version.")] = "",
) -> None:
    """The zip file to upload to Gradescope as the assignment's autograder. It holds a secret: keep it to yourself."""
    from autograder.authors import release

    from . import gradescope

    gradescope.bundle(_lab(lab), out, release.installable(requirement))
    _said(f"Wrote {out}. Upload it under Configure Autograder.")


@app.command()
def assignment(
    lab: Annotated[str, typer.Argument(help="The lab.")],
    course: Annotated[Path, typer.Argument(file_okay=False, help="The course folder of nbgrader.")],
) -> None:
    """A lab as an assignment of nbgrader, in COURSE/source; continue with `nbgrader generate_assignment`."""
    from . import nbgrader

    _said(f"Wrote {nbgrader.write_assignment(_lab(lab), course)}.")


@app.command()
def nbgrader(
    folder: Results,
    course: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The course folder of nbgrader.")],
    lab: Lab = None,
) -> None:
    """Enter scores and comments into the gradebook of a course of nbgrader."""
    from . import nbgrader

    found = _results(folder, lab)
    try:
        count = nbgrader.to_gradebook(found, course)
    except load.ResultError as error:
        _refuse(error)
    _said(f"Entered {count} submissions into {course / 'gradebook.db'}.")


def _lab(slug: str) -> str:
    if slug not in exercises.LABS:
        raise typer.BadParameter(f"there is no lab {slug!r}; the labs are {', '.join(exercises.LABS)}")
    return slug


def _results(folder: Path, lab: str | None):
    """What the folder holds, with what the instructor's sheets in it add."""
    from . import adjustments

    try:
        if stale := load.replaced(folder):
            names = ", ".join(str(path.relative_to(folder)) for path in stale[:5]) + (", ..." if len(stale) > 5 else "")
            _said(f"Left out, since grades.csv has no row for them: {names}. They are of earlier submissions.")
        return adjustments.adjusted(load.results(folder, lab), folder)
    except load.ResultError as error:
        _refuse(error)


def _filled(fill, folder: Path, lab: str | None, out: Path) -> None:
    found = _results(folder, lab)
    try:
        filled = fill(found)
    except load.ResultError as error:
        _refuse(error)
    _said(f"Filled in {filled.rows} grades: {out}.")
    for line in filled.left:
        _said(f"  left open: {line}")


def _refuse(error: Exception):
    end(str(error))


def _said(text: str) -> None:
    say(text)
