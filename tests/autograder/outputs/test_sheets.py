"""The sheet of a course system comes back with its grades, and otherwise as it was."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from autograder.cli import app
from autograder.grading import grades, layouts
from autograder.outputs import canvas, load, moodle, roster, sheet
from autograder.results import Adjustment, CheckResult, ExerciseResult, LabResult

CANVAS = '''Student,ID,SIS User ID,SIS Login ID,Section,Lab Tiny (321),Other (99),Current Score
    Points Possible,,,,,10,5,(read only)
"Lovelace, Ada",4711,,ada,Monday,,3,
"Nobody, Nora",5,,nora,Monday,,,
"Benson, Ben",6,,ben,Monday,1,,
"Doe, Dan",12,,dan,Monday,,,
"=""=cmd()""",7,,x,Monday,EX,,
'''
MOODLE = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (submission),Last modified (grade),Feedback comments\n"
    """Participant 4711,Ada Lovelace,ada@x.org,Submitted,,"50,00",Yes,"Friday, 1 May 2026, 10:00 AM",-,
Participant 6,ben,ben@x.org,Submitted,,50.00,Yes,-,-,
Participant 12,Dan Doe,dan@x.org,Submitted,,50.00,Yes,-,-,
Participant 13,@evil,e@x.org,No submission,,50.00,No,-,-,
"""
)


def rows(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture
def given_file(tmp_path):
    def write(text, encoding="utf-8"):
        (tmp_path / "given.csv").write_bytes(text.encode(encoding))
        return tmp_path / "given.csv"

    return write


def test_canvas_scores_are_scaled_to_the_sheet_and_nothing_else_changes(tmp_path, given_file, class_results):
    filled = canvas.fill(class_results, given_file(CANVAS), tmp_path / "out.csv")
    before, after = rows(tmp_path / "given.csv"), rows(tmp_path / "out.csv")
    assert [row[5] for row in after] == ["Lab Tiny (321)", "10", "6", "", "4", "", "EX"]
    assert after[1][0] == "    Points Possible"
    assert after[-1][0] == '\'="=cmd()"'
    for one, other in zip(before[:-1], after[:-1], strict=True):
        assert one[:5] + one[6:] == other[:5] + other[6:]
    assert filled.rows == 2
    said = "\n".join(filled.left)
    assert "Nobody, Nora: no submission" in said
    assert "Doe, Dan: the file is empty" in said
    assert "no row in the sheet" in said


def test_canvas_with_semicolons_and_a_byte_order_mark_stays_so(tmp_path, given_file, class_results):
    lines = [["Student", "ID", "SIS Login ID", "Section", "Lab Tiny (321)"], ["    Points Possible", "", "", "", "100"]]
    lines += [["Lovelace, Ada", "4711", "ada", "M", ""]]
    text = "\r\n".join(";".join(line) for line in lines) + "\r\n"
    canvas.fill(class_results, given_file(text, "utf-8-sig"), tmp_path / "out.csv")
    data = (tmp_path / "out.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbfStudent;ID;")
    assert b"\r\nLovelace, Ada;4711;ada;M;60\r\n" in data


def test_canvas_asks_which_column_where_several_could_be_meant(tmp_path, given_file, class_results):
    source = given_file(CANVAS.replace("Lab Tiny", "One"))
    with pytest.raises(load.ResultError, match=r"One \(321\); Other \(99\)"):
        canvas.fill(class_results, source, tmp_path / "out.csv")
    assert canvas.fill(class_results, source, tmp_path / "out.csv", "Other").rows == 2


def test_results_of_two_labs_are_not_mixed_in_one_column(tmp_path, given_file, class_results):
    class_results[0].lab = "another"
    with pytest.raises(load.ResultError, match="another, tiny; say which with --lab"):
        canvas.fill(class_results, given_file(CANVAS), tmp_path / "out.csv")


def test_moodle_worksheet_is_filled_in(tmp_path, given_file, class_results):
    filled = moodle.fill(class_results, given_file(MOODLE), tmp_path / "out.csv")
    after = rows(tmp_path / "out.csv")
    assert [row[4] for row in after[1:]] == ["30", "20", "", ""]
    assert after[1][9] == "count 0/40"
    assert after[1][7:9] == ["Friday, 1 May 2026, 10:00 AM", "-"]
    assert after[4][1] == "'@evil"
    assert filled.rows == 2
    assert "@evil: the sheet says that the grade cannot be changed" in filled.left


def test_moodle_comments_are_escaped_since_moodle_reads_html(tmp_path, given_file, class_results):
    class_results[0].message = "<script>alert(1)</script>"
    moodle.fill(class_results, given_file(MOODLE), tmp_path / "out.csv")
    assert "&lt;script&gt;" in rows(tmp_path / "out.csv")[1][9]


def test_worksheet_in_another_language(tmp_path, given_file, class_results):
    source = given_file("ID,Bewertung\nTeilnehmer/in 4711,\n")
    with pytest.raises(load.ResultError, match="no column 'Grade'; its columns are ID, Bewertung"):
        moodle.fill(class_results, source, tmp_path / "out.csv")
    moodle.fill(class_results, source, tmp_path / "out.csv", grade="Bewertung")
    assert rows(tmp_path / "out.csv")[1] == ["Teilnehmer/in 4711", "60"]


def test_a_number_with_another_name_is_another_student(tmp_path, given_file, class_results):
    class_results[0].student = "team_4711"
    filled = canvas.fill(class_results, given_file(CANVAS), tmp_path / "out.csv")
    assert rows(tmp_path / "out.csv")[2][5] == ""
    assert {"Lovelace, Ada: no submission", "team_4711: no row in the sheet"} <= set(filled.left)


def test_students_whose_names_the_system_hides_are_found_by_number(tmp_path, given_file, class_results):
    class_results[0].student = "Participant_4711"
    assert moodle.fill(class_results, given_file(MOODLE), tmp_path / "out.csv").rows == 2


def test_a_file_that_is_no_sheet_is_refused(tmp_path, given_file, class_results):
    with pytest.raises(load.ResultError, match="no header of several columns"):
        canvas.fill(class_results, given_file("x\n"), tmp_path / "out.csv")


@given(st.text(max_size=20))
def test_no_cell_is_a_formula(cell):
    written = sheet._harmless(cell)
    assert written[:1] not in ("=", "@", "\t", "\r")
    if written[:1] in ("+", "-"):
        assert not set(written) - set("+-0123456789.,%")


@given(points=st.floats(0, 1000), most=st.floats(0.1, 1000), possible=st.none() | st.floats(0, 1000))
def test_a_scaled_score_stays_between_nothing_and_all(points, most, possible):
    check = CheckResult("c", "t", min(points, most), "passed")
    result = LabResult("s", "tiny", most, [ExerciseResult("tiny.e", "e", most, [check])])
    assert 0 <= load.scaled(result, possible) <= (most + 0.005 if possible is None else possible)


# -- whose row it is


def filled_rows(tmp_path, given_file, found, fill, text, column):
    filled = fill(found, given_file(text), tmp_path / "out.csv")
    return [row[column] for row in rows(tmp_path / "out.csv")[1:]], "\n".join(filled.left)


@pytest.mark.parametrize(
    "student",
    [
        "Eve_12_assignsubmission_file_Ada Lovelace_4711",  # what a greedy pattern made of Eve's own file's name
        "anon_4711",
        "team_4711",
        "ada_lovelace_9",
    ],
)
def test_a_chosen_name_takes_no_row(tmp_path, given_file, make_result, student):
    for fill, text, column in ((canvas.fill, CANVAS, 5), (moodle.fill, MOODLE, 4)):
        before, _ = filled_rows(tmp_path, given_file, [make_result("nobody")], fill, text, column)
        entered, left = filled_rows(tmp_path, given_file, [make_result(student)], fill, text, column)
        assert entered == before
        assert f"{student}: no row in the sheet" in left


def test_a_files_name_names_only_its_owner(tmp_path):
    name = "Eve Evil_12_assignsubmission_file_Ada Lovelace_4711_assignsubmission_file_lab.ipynb"
    assert layouts.owner(tmp_path / name) == "Eve Evil_12"


def test_two_claims_on_a_row_are_refused(tmp_path, given_file, make_result):
    found = [make_result("Ada"), make_result("ada", passed=1)]
    entered, left = filled_rows(tmp_path, given_file, found, canvas.fill, CANVAS, 5)
    assert entered[1] == ""
    assert "Lovelace, Ada: 'Ada' and 'ada' both fit this row; enter one by hand" in left


def test_the_number_goes_before_a_name(tmp_path, given_file, make_result):
    found = [make_result("lovelaceada_4711"), make_result("Ada Lovelace", passed=1)]
    entered, left = filled_rows(tmp_path, given_file, found, moodle.fill, MOODLE, 4)
    assert entered[0] == "30"
    assert "Ada Lovelace: its row, Ada Lovelace, is that of 'lovelaceada_4711'" in left


def test_a_name_that_another_has_as_login_is_theirs(tmp_path, given_file, make_result):
    """Eve calls herself `ada` in the course system: the login decides."""
    text = CANVAS.replace('"Nobody, Nora"', "ada")
    entered, _ = filled_rows(tmp_path, given_file, [make_result("ada")], canvas.fill, text, 5)
    assert (entered[1], entered[2]) == ("6", "")


def test_namesakes_are_refused_with_numbers(tmp_path, given_file, make_result):
    text = CANVAS.replace("Nobody, Nora", "Benson, Ben")
    entered, left = filled_rows(tmp_path, given_file, [make_result("Benson, Ben")], canvas.fill, text, 5)
    assert (entered[2], entered[3]) == ("", "1")
    assert "Benson, Ben: fits the rows of Benson, Ben (5) and Benson, Ben (6); enter it by hand" in left


@given(
    st.permutations(["ada", "Ada", "ADA", "4711", "lovelaceada_4711", "Lovelace, Ada", "ben", "x"]), st.integers(1, 8)
)
def test_no_result_is_in_two_rows(students, count):
    people = [roster.Person(1, "4711", ("ada",), ("Lovelace, Ada",)), roster.Person(2, "6", ("ben",), ("ada",))]
    found = [LabResult(student, "tiny", 1.0) for student in students[:count]]
    matched = roster.Roster(found, people)
    assert len({result.student for result in matched.results.values()}) == len(matched.results)
    assert not set(matched.results) & set(matched.refused)
    said = " ".join([*matched.left, *matched.refused.values()])
    assert all(r.student in said or r in matched.results.values() for r in found)


def test_moodles_comment_has_late_points(tmp_path, given_file, make_result):
    found = [make_result("ben", passed=1)]
    found[0].adjustments = [Adjustment(-5, "late: 2 days, 1 of them free")]
    moodle.fill(found, given_file(MOODLE), tmp_path / "out.csv")
    row = rows(tmp_path / "out.csv")[2]
    assert row[4] == "17.5"
    assert row[9] == "mean 40/60; count 0/40; late: 2 days, 1 of them free: -5 points"


# -- grades of submissions that are no more


def test_replaced_grades_are_not_exported(folder, make_result, class_results):
    class_results[1] = LabResult("ben", "", 0, status="ungradable", message="the file is empty")
    grades.write(class_results, folder)
    found = {result.student: result for result in load.results(folder)}
    assert found["ben"].status == "ungradable"
    assert load.replaced(folder) == [folder / "ben" / "tiny.json"]
    ended = CliRunner().invoke(app, ["export", "junit", str(folder), "--out", str(folder / "x.xml")])
    assert "Left out, since grades.csv has no row for them: ben/tiny.json." in ended.output


def test_students_who_left_are_not_exported(folder, class_results):
    grades.write(class_results[:1], folder)
    assert [result.student for result in load.results(folder)] == ["lovelaceada_4711"]
