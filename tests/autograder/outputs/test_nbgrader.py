"""A lab becomes an assignment that nbgrader itself accepts, hands out and grades, and results reach its gradebook."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograder import exercises
from autograder.authors import build
from autograder.outputs import load
from autograder.outputs import nbgrader as ours

LAB = "calculus"


@pytest.fixture(scope="module")
def real():
    """nbgrader itself, `pip install -e '.[nbgrader]'`."""
    return pytest.importorskip("nbgrader", reason="nbgrader is not installed")


@pytest.fixture(scope="module")
def course(real, tmp_path_factory):
    """A course folder with the lab as an assignment, handed out by `nbgrader generate_assignment`."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'hpc'\n")
    ours.write_assignment(LAB, folder)
    nbgrader(folder, "generate_assignment", LAB, "--create")
    return folder


def nbgrader(folder, *arguments):
    command = [sys.executable, "-m", "nbgrader", *arguments]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # nbgrader calls alembic by name
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("slug", exercises.LABS)
def test_every_lab_becomes_an_assignment(slug):
    cells = [cell for cell in ours.assignment(slug).cells if "nbgrader" in cell.metadata]
    metadata = [cell.metadata["nbgrader"] for cell in cells]
    names = list(exercises.load(slug).exercises)
    assert [m["grade_id"] for m in metadata if m["solution"]] == [f"{name}-answer" for name in names]
    assert [m["grade_id"] for m in metadata if m["grade"]] == names
    assert sum(m.get("points", 0) for m in metadata) == sum(
        ours.shown_points(e) for e in exercises.load(slug).exercises.values()
    )
    for cell in cells:
        if cell.metadata["nbgrader"]["grade"]:
            assert cell.source.splitlines()[-1].startswith("check("), "its last expression is the points"
        else:
            assert build.BEGIN in cell.source


def test_the_metadata_is_what_nbgrader_itself_calls_valid(real):
    from nbgrader.nbgraderformat.v3 import MetadataValidatorV3

    MetadataValidatorV3().validate_nb(ours.assignment(LAB))


def test_check_gives_a_float_and_writes_nothing_to_stderr(capsys, tiny, solution):
    namespace = {"check": ours.check}
    exec(solution["mean"].replace("import torch", "import sys\nsys.stderr.write('noise')"), namespace)
    capsys.readouterr()
    points = eval('check("tiny.mean")', namespace)
    assert (type(points), points) == (float, 60.0)
    printed = capsys.readouterr()
    assert "60 / 60" in printed.out
    assert printed.err == ""


@pytest.mark.labs  # the longest way through nbgrader; its own validation is asked in the first tier
def test_nbgrader_hands_the_lab_out_without_its_solutions(course):
    notebook = nbformat.read(course / "release" / LAB / f"{LAB}.ipynb", 4)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    assert len(graded) == len(exercises.load(LAB).exercises)
    assert all("NotImplementedError" in cell.source and "SOLUTION" not in cell.source for cell in graded)
    assert all(cell.metadata.nbgrader.checksum for cell in graded)


@pytest.mark.long
def test_nbgrader_gives_partial_credit(course):
    from nbgrader.api import Gradebook

    released = nbformat.read(course / "release" / LAB / f"{LAB}.ipynb", 4)
    answers = build.references(LAB)
    for student, done in {"ada": list(answers), "ben": list(answers)[:1]}.items():
        for cell in released.cells:
            name = cell.metadata.get("hpcdl", {}).get("exercise", "").partition(".")[2]
            if name in done:
                cell.source = answers[name]
        path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(released, path)
        released = nbformat.read(course / "release" / LAB / f"{LAB}.ipynb", 4)
    nbgrader(course, "autograde", LAB, "--create", "--ExecutePreprocessor.allow_errors=True")
    first = next(iter(exercises.load(LAB).exercises.values()))
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        assert book.find_submission(LAB, "ada").score == 100
        assert book.find_submission(LAB, "ben").score == ours.shown_points(first)


@pytest.mark.labs  # results that join an assignment are asked in the first tier
def test_results_reach_the_gradebook_and_a_second_time_changes_nothing(real, tmp_path, class_results):
    from nbgrader.api import Gradebook

    for _ in range(2):
        assert ours.to_gradebook(class_results, tmp_path) == 4
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        scores = {s.student.id: (s.score, s.max_score) for s in book.assignment_submissions("tiny")}
        comment = book.find_comment("count-answer", "tiny", "tiny", "ben").comment
    assert scores == {
        "lovelaceada_4711": (60, 100),
        "ben": (40, 100),
        "<script>alert(1)</script>": (0, 100),
        "=cmd()|'/c calc'!A0": (40, 100),
    }
    assert "not done yet" in comment


def test_results_join_the_assignment_that_nbgrader_made(course, make_result):
    from nbgrader.api import Gradebook

    result = make_result("zoe")
    result.lab = LAB
    for exercise, declared in zip(result.exercises, exercises.load(LAB).exercises.values(), strict=False):
        exercise.name = declared.name
    ours.to_gradebook([result], course)
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        assert book.find_submission(LAB, "zoe").score == 60
        assert len(book.find_assignment(LAB).notebooks) == 1


def test_without_nbgrader_the_export_says_what_to_install(tmp_path, class_results, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbgrader.api", None)
    with pytest.raises(load.ResultError, match=r"pip install 'hpcdl\[nbgrader\]'"):
        ours.to_gradebook(class_results, tmp_path)
