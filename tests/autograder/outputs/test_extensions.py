"""More time for a student: days until the deadline (see also test_adjustments), and longer limits of checks."""

import itertools

import pytest
from typer.testing import CliRunner

from autograder import exercises
from autograder.cli import app
from autograder.grading import batch, grade, store
from autograder.grading.submission import Submission
from autograder.outputs import extensions
from autograder.outputs.load import ResultError

HEADER = "student,lab,days,time,reason\n"


def sheet(folder, *rows):
    (folder / extensions.EXTENSIONS).write_text(HEADER + "\n".join(rows) + "\n")
    return folder


def limits(lab):
    return {
        (exercise.id, check.name): check.seconds
        for exercise in lab.exercises.values()
        for check in exercise.checks.values()
    }


def test_a_copy_of_a_lab_has_longer_limits_and_the_lab_keeps_its_own():
    lab = exercises.load("gradient_descent")
    before = limits(lab)
    longer = lab.with_limits(2.5)
    assert limits(longer) == {name: 2.5 * seconds for name, seconds in before.items()}
    assert all(exercise.lab is longer for exercise in longer.exercises.values())
    assert limits(lab) == before
    assert all(exercise.lab is lab for exercise in lab.exercises.values())
    assert lab.with_limits(1) is lab


def test_the_largest_of_a_students_rows_for_the_lab_counts(tmp_path):
    sheet(tmp_path, "ada,tiny,,2,", "ada,,1,1.5,", "ada,other,,9,", "ben,tiny,7,,")
    ada, ben, eve = extensions.timed([Submission(name, None) for name in ("ada", "ben", "eve")], tmp_path)
    assert [ada.more_time(lab) for lab in ("tiny", "another", "other")] == [2, 1.5, 9]
    assert ben.more_time("tiny") == eve.more_time("tiny") == 1
    assert extensions.days(tmp_path, "tiny") == {"ada": 1, "ben": 7}


@pytest.mark.parametrize("time", ["0.5", "11", "nan", "-2", "long"])
def test_time_must_be_a_factor(tmp_path, time):
    with pytest.raises(ResultError, match=r"ada has time='.*'; write a number of times from 1 to 10"):
        extensions.read(sheet(tmp_path, f"ada,,,{time},x"))


def test_a_kept_result_is_of_the_same_limits(tmp_path):
    """Keys differ by what the limits are multiplied by, and are what they were where the sheet has no row."""
    file = tmp_path / "a.ipynb"
    file.write_text("{}")
    each = Submission("ada", file)
    tried = [
        [each],
        *(
            extensions.timed([each], sheet(tmp_path, f"{who},,,{n},"))
            for who, n in [("ada", 2), ("ada", 3), ("ben", 2)]
        ),
    ]
    keys = [store.key_of(one, b"x", None, "here") for (one,) in tried]
    assert keys[0] == keys[3]
    assert all(a != b for a, b in itertools.combinations(keys[:3], 2))


@pytest.fixture
def submissions(tmp_path, notebook_text):
    text = notebook_text("x = 1", hpcdl={"lab": "gradient_descent"})
    for name in ("ada", "ben"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "02_gradient_descent.ipynb").write_text(text)
    return tmp_path / "in"


def test_every_command_that_grades_honours_the_sheet(submissions, tmp_path, monkeypatch, make_result):
    """`grade`, a shard with `merge`, and `regrade` pass each submission on with the times of its student."""
    seen = {}

    def graded(submission, *_):
        seen[submission.student] = submission.more_time("tiny"), submission.more_time("other")
        return make_result(submission.student)

    monkeypatch.setattr(batch.grade, "grade", graded)
    monkeypatch.setattr(batch.Lane, "open_zygote", lambda lane: setattr(lane, "zygote", None))
    monkeypatch.setattr(batch.canaries, "require", lambda zygote: None)
    for command, out, *options in (
        ("grade", "results"),
        ("regrade", "results"),
        ("grade", "shards", "--shard", "1/1"),
        ("merge", "shards"),
    ):
        (tmp_path / out).mkdir(exist_ok=True)
        sheet(tmp_path / out, "ada,tiny,,3,slow machine")
        seen.clear()
        if command != "merge":
            options += ["--lanes", "1", "--no-mpi", "--allow-weak"]
        ended = CliRunner().invoke(app, [command, str(submissions), "--out", str(tmp_path / out), *options])
        assert ended.exit_code == 0, ended.output
        assert seen == ({} if command == "merge" else {"ada": (3, 1), "ben": (1, 1)}), command
    kept = [path.read_text() for path in tmp_path.glob("*/*") if path.is_file() and path.name != extensions.EXTENSIONS]
    assert kept
    assert not [text for text in kept if "slow machine" in text]


def test_the_checks_of_a_submission_have_its_times(submissions, zygote, monkeypatch):
    full, seen = limits(exercises.load("gradient_descent")), []

    class SeenError(Exception):
        pass

    def watched(session, notes, lab, *_):
        seen.append(limits(lab))
        raise SeenError

    monkeypatch.setattr(grade, "grade_session", watched)
    for times in ((), (("", 3.0),)):
        submission = Submission("ada", submissions / "ada" / "02_gradient_descent.ipynb", times=times)
        with pytest.raises(SeenError):
            grade.grade(submission, zygote, b"x")
    assert seen == [full, {name: 3 * seconds for name, seconds in full.items()}]


def test_a_bad_sheet_stops_grading_with_its_cell(tmp_path):
    (tmp_path / "in" / "ada").mkdir(parents=True)
    (tmp_path / "in" / "ada" / "02.ipynb").write_text("{}")
    sheet(tmp_path, "ada,,,fast,")
    ended = CliRunner().invoke(app, ["grade", str(tmp_path / "in"), "--out", str(tmp_path), "--allow-weak"])
    assert ended.exit_code == 1
    assert "ada has time='fast'; write a number of times from 1 to 10" in " ".join(ended.output.split())
