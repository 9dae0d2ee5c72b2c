"""An instructor's sheets among the results: points by hand, late days, groups; every export follows them."""

import os
from datetime import datetime

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from autograder.grading import grades
from autograder.grading.layouts import Submission
from autograder.outputs import adjustments, extensions, late, load
from autograder.outputs.load import ResultError
from autograder.results import LabResult


@pytest.fixture
def results(tmp_path, make_result):
    """Ada has 60 of 100 points, ben 40; doe could not be graded."""
    found = [
        make_result("ada"),
        make_result("ben", passed=1),
        LabResult("doe", "", 0, status="ungradable", message="-"),
    ]
    grades.write(found, tmp_path / "results")
    return tmp_path / "results"


def by_student(folder, lab=None):
    return {result.student: result for result in adjustments.adjusted(load.results(folder, lab), folder)}


def write(folder, *lines, name=adjustments.ADJUSTMENTS, header="student,lab,points,of,reason"):
    (folder / name).write_text("\n".join([header, *lines]) + "\n")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_without_sheets_nothing_changes(results):
    assert adjustments.adjusted(load.results(results), results) == load.results(results)


def test_points_are_added_taken_away_and_stay_between_0_and_the_maximum(results):
    write(results, "ada,tiny,-10,,two days late", "ada,tiny,2.5,,found a mistake of ours", "ben,tiny,-99,,never came")
    found = by_student(results)
    assert {name: found[name].score for name in ("ada", "ben")} == {"ada": 52.5, "ben": 0}
    assert [each.reason for each in found["ada"].adjustments] == ["two days late", "found a mistake of ours"]
    assert found["ada"].max_score == 100


def test_a_written_answer_makes_the_lab_worth_more_for_everybody(results):
    write(results, "ada,tiny,8,10,why the mean?")
    found = by_student(results)
    assert [(found[name].score, found[name].max_score) for name in ("ada", "ben")] == [(68, 110), (40, 110)]


def test_feedback_and_sheets_follow(results, tmp_path):
    write(results, "ada,tiny,-10,,2 days <late>")
    assert run("export", "html", results).exit_code == 0
    page = (results / "feedback" / "ada" / "tiny.html").read_text()
    assert "<b>50 / 100</b>" in page
    assert "-10 points: 2 days &lt;late&gt;" in page
    run("export", "markdown", results)
    assert "\\-10 points" not in (text := (results / "feedback" / "ada" / "tiny.md").read_text())
    assert "-10 points: 2 days \\<late\\>" in text
    gradebook = tmp_path / "canvas.csv"
    gradebook.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,tiny (17)\nPoints Possible,,,,,100\nada,1,ada,ada,A,\n"
    )
    assert run("export", "canvas", results, gradebook, "--out", tmp_path / "filled.csv").exit_code == 0
    assert "ada,1,ada,ada,A,50" in (tmp_path / "filled.csv").read_text()


def test_grading_again_leaves_the_sheets_alone_and_their_names_are_taken(results):
    write(results, "ada,tiny,-10,,late")
    grades.write(load.results(results), results)
    assert by_student(results)["ada"].score == 50
    assert grades.safe_name("adjustments.csv") != "adjustments.csv"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ada,tiny,ten,,x", "'ada' has 'ten' points; write a number"),
        ("ada,tiny,nan,,x", "'ada' has 'nan' points"),
        ("eve,tiny,1,,x", "no result of 'eve' in lab 'tiny'"),
        ("ada,tinny,1,,x", "lab 'tinny'; the labs are tiny"),
    ],
)
def test_a_row_that_cannot_be_meant_is_named(results, line, said):
    write(results, line)
    with pytest.raises(ResultError, match=said):
        by_student(results)
    ended = run("export", "html", results)
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output


def test_a_sheet_without_its_columns_is_named(results):
    write(results, "x,y", header="name,points")
    with pytest.raises(ResultError, match="has the columns name, points; needed are student, lab"):
        by_student(results)


def test_who_handed_in_nothing_has_the_result_of_the_group(results):
    write(results, "ada,1", "doe,1", "eve,1", "ben,2", name=adjustments.GROUPS, header="student,group")
    found = by_student(results)
    assert {name: result.score for name, result in found.items()} == {"ada": 60, "ben": 40, "doe": 60, "eve": 60}
    assert found["eve"].message == found["doe"].message == "handed in by ada"
    assert found["doe"].status == "graded"


def test_points_by_hand_reach_a_member_of_a_group(results):
    write(results, "eve,tiny,5,,the talk")
    write(results, "ada,1", "eve,1", name=adjustments.GROUPS, header="student,group")
    found = by_student(results)
    assert (found["ada"].score, found["eve"].score) == (60, 65)


# -- late days --------------------------------------------------------------------------------------------------------

DEADLINE = datetime(2026, 11, 20, 23, 59)


@pytest.mark.parametrize(
    ("time", "days"),
    [
        ("2026-11-20 23:59", 0),
        ("2026-11-21 00:00", 1),
        ("2026-11-21 23:59", 1),
        ("2026-11-22 00:00", 2),
        ("2026-10-01", 0),
    ],
)
def test_a_day_that_has_begun_counts(time, days):
    assert late.days_late(late.moment(time), DEADLINE) == days


def test_files_tell_their_times_and_rows_are_made_anew(results, tmp_path):
    submissions = tmp_path / "submissions"
    submissions.mkdir()
    for name, day in (("ada", 23), ("ben", 21)):
        file = submissions / f"{name}.ipynb"
        file.write_text("{}")
        os.utime(file, (datetime(2026, 11, day, 12).timestamp(),) * 2)
    write(results, "ada,tiny,3,,a talk")
    for _ in range(2):
        ended = run("late", submissions, results, "--deadline", "2026-11-20 23:59", "--per-day", 5, "--free", 1)
        assert ended.exit_code == 0, ended.output
        assert "ada: -10, late: 3 days, 1 of them free" in ended.output
    rows = adjustments.read(results / adjustments.ADJUSTMENTS)
    assert [(row.student, row.points) for row in rows] == [("ada", -10), ("ada", 3)]
    assert by_student(results)["ada"].score == 53


def test_a_sheet_tells_the_times_and_what_is_no_time_is_named(results, tmp_path):
    sheet = tmp_path / "times.csv"
    sheet.write_text("student,time\nben,2026-11-21T08:00\nada,2026-11-20 12:00\nBen,2026-11-22 12:00\n")
    ended = run("late", tmp_path, results, "--deadline", "2026-11-20 23:59", "--times", sheet)
    assert "times.csv: Ben has no result here; see whether the name" in " ".join(ended.output.split())
    assert by_student(results)["ben"].score == 30
    ended = run("late", tmp_path, results, "--deadline", "tomorrow", "--times", sheet)
    assert ended.exit_code == 2
    assert "'tomorrow' is no date and time" in " ".join(ended.output.split())


def test_a_group_is_late_together(results, tmp_path):
    write(results, "ada,1", "eve,1", name=adjustments.GROUPS, header="student,group")
    sheet = tmp_path / "times.csv"
    sheet.write_text("student,time\nada,2026-11-22 08:00\n")
    assert run("late", tmp_path, results, "--deadline", "2026-11-20 23:59", "--times", sheet).exit_code == 0
    found = by_student(results)
    assert (found["ada"].score, found["eve"].score, found["ben"].score) == (40, 40, 40)


def test_extension_moves_the_deadline(results, tmp_path):
    """The largest of a student's rows counts; an empty lab is every lab; other labs' rows do not count."""
    rows = ("ada,tiny,1,", "ada,,2,", "ben,other,9,", "zoe,,3,")
    write(results, *rows, name=extensions.EXTENSIONS, header="student,lab,days,reason")
    sheet = tmp_path / "times.csv"
    sheet.write_text("student,time\nada,2026-11-23 08:00\nben,2026-11-23 08:00\n")
    ended = run("late", tmp_path, results, "--deadline", "2026-11-20 23:59", "--times", sheet)
    assert ended.exit_code == 0, ended.output
    rows = adjustments.read(results / adjustments.ADJUSTMENTS)
    assert [(row.student, row.points) for row in rows] == [("ada", -10), ("ben", -30)]
    assert "zoe has no result here" in " ".join(ended.output.split())


@pytest.mark.parametrize("days", ["-1", "nan", "inf", "soon", ""])
def test_extension_must_be_days(results, tmp_path, days):
    write(results, f"ada,,{days},x", name=extensions.EXTENSIONS, header="student,lab,days,reason")
    ended = run("late", tmp_path, results, "--deadline", "2026-11-20 23:59")
    assert ended.exit_code == 2
    assert "ada has days=" in " ".join(ended.output.split())


def test_of_several_files_the_newest_tells(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, hour in zip(paths, (9, 8), strict=True):
        path.touch()
        os.utime(path, (datetime(2026, 11, 20, hour).timestamp(),) * 2)
    times = late.times_of_files([Submission("ada", path) for path in paths] + [Submission("eve", None, "empty")])
    assert times == {"ada": datetime(2026, 11, 20, 9)}
