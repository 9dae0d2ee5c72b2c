"""nbgrader: a lab as one of its assignments, and results in its gradebook.

In an assignment the checks run in the student's own kernel, as all tests of nbgrader do: it helps students to see their
points, and can be cheated. The grades that count are those of `autograder grade`; `to_gradebook` enters them.
"""

import contextlib
import io
import os
import sys
import warnings
from pathlib import Path

import nbformat

from autograder import api, exercises, feedback
from autograder.authoring import Exercise
from autograder.authors import build
from autograder.results import LabResult
from hpcdl.files import write_whole

from .load import ResultError, bounded, for_student

IMPORT = "from autograder.outputs.nbgrader import check"
CELL = {"schema_version": 3, "task": False}  # of nbgrader's cell metadata, `nbgraderformat/v3.json`


def check(name: str) -> float:
    """Return the points of an exercise after printing its feedback: the last line of a test cell.

    nbgrader takes a float for partial credit, None or a text for all points, and anything on stderr for none.
    """
    (exercise,) = api.find(name)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        shown = api.feedback(exercise, sys._getframe(1).f_globals)
    print(repr(shown))
    return float(shown.result.points)


def assignment(slug: str) -> nbformat.NotebookNode:
    """Return the lab's notebook with solutions between nbgrader's marks, for `source/` of a course."""
    lab, notebook, answers = exercises.load(slug), build.student(slug), build.marked(slug)
    for cell in notebook.cells:
        exercise = cell.metadata.get("hpcdl", {}).get("exercise", "").partition(".")[2]
        if exercise:
            cell.source = answers[exercise]
            cell.metadata["nbgrader"] = {**CELL, **_answer(exercise), "grade": False, "solution": True, "locked": False}
        elif cell.cell_type == "code" and (call := build.CHECK_CALL.search(cell.source)):
            tested = lab.exercises[call.group(1).partition(".")[2]]
            cell.source = f"{IMPORT}\n{cell.source}"
            test = {"grade_id": tested.name, "points": shown_points(tested)}
            cell.metadata["nbgrader"] = {**CELL, **test, "grade": True, "solution": False, "locked": True}
    return notebook


def shown_points(exercise: Exercise) -> float:
    """Return the points of the checks that run in a notebook: hidden ones run only in `autograder grade`."""
    return sum(check.points for check in exercise.checks.values() if not check.hidden)


def write_assignment(slug: str, course: Path) -> Path:
    """Write the assignment into the course folder, for `nbgrader generate_assignment`; return the path."""
    path = course / "source" / slug / f"{slug}.ipynb"
    text = build.write(assignment(slug))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return path


def to_gradebook(found: list[LabResult], course: Path) -> int:
    """Enter scores and comments into `gradebook.db` of a course folder; return the number of submissions entered."""
    try:
        from nbgrader.api import Gradebook
    except ImportError:
        raise ResultError("nbgrader is not installed; `pip install 'hpcdl[nbgrader]'` installs it") from None
    graded = [result for result in found if result.status == "graded"]
    with _surroundings(), Gradebook(f"sqlite:///{(course / 'gradebook.db').resolve()}") as book:
        for result in graded:
            bounded(result)
            _enter(book, for_student(result))
    return len(graded)


@contextlib.contextmanager
def _surroundings():
    """Provide what nbgrader needs: it calls `alembic` by name to make a database, so the one next to this Python must
    be found; and its use of SQLAlchemy 2 warns."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.environ["PATH"] = before


def _enter(book, result: LabResult) -> None:
    lab = result.lab
    book.update_or_create_assignment(lab)
    book.update_or_create_notebook(lab, lab)
    for exercise in result.exercises:
        book.update_or_create_grade_cell(exercise.name, lab, lab, max_score=exercise.max_points, cell_type="code")
        book.update_or_create_solution_cell(_answer(exercise.name)["grade_id"], lab, lab)
    book.update_or_create_student(result.student)
    _current_submission(book, lab, result.student)
    for exercise in result.exercises:
        grade = book.find_grade(exercise.name, lab, lab, result.student)
        grade.auto_score, grade.needs_manual_grade = exercise.points, False
        book.find_comment(_answer(exercise.name)["grade_id"], lab, lab, result.student).auto_comment = feedback.text(
            exercise
        )
    book.db.commit()


def _current_submission(book, lab: str, student: str) -> None:
    """Return the student's submission with a place for each grade; recreate one that was made for fewer cells."""
    from nbgrader.api import MissingEntry

    book.update_or_create_submission(lab, student)
    cells = [cell for notebook in book.find_assignment(lab).notebooks for cell in notebook.grade_cells]
    try:
        for cell in cells:
            book.find_grade(cell.name, cell.notebook.name, lab, student)
    except MissingEntry:
        book.remove_submission(lab, student)
        book.add_submission(lab, student)


def _answer(exercise: str) -> dict[str, str]:
    return {"grade_id": f"{exercise}-answer"}
