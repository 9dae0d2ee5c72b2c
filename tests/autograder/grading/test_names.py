"""Whatever a student is called and hands in: a row of their own, a folder of their own, and nothing is overwritten."""

import csv
import os
import zipfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autograder.grading import grades, layouts
from autograder.grading.layouts import Submission
from autograder.outputs import html, load
from autograder.results import ExerciseResult, LabResult

STRANGE = ["grades.csv", "feedback", "instructor.html", "a:b", "a_b", "a?b", ".cache", "cache", "..", "_", "x" * 255]
STRANGE += ["esc\x1b[2J", "line\nfeed", "Grades.CSV", "a b ", "a b", f"{'x' * 254}y", "a_b-00000000", "<b>"]


def result(student: str, points: float = 7.0) -> LabResult:
    return LabResult(student, "calculus", 10.0, [ExerciseResult("calculus.x", "x", 10.0)], message=f"{points}")


def rows(out) -> list[dict]:
    with open(out / "grades.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_each_strange_name_has_a_row_and_a_file_and_comes_back(tmp_path):
    grades.write([result(name) for name in STRANGE], tmp_path)
    assert [row["student"] for row in rows(tmp_path)] == STRANGE
    found = load.results(tmp_path)
    assert sorted(each.student for each in found) == sorted(STRANGE)
    pages = html.write(found, tmp_path / "feedback")
    html.write_text(tmp_path / "instructor.html", html.instructor_page(found))
    assert len(set(pages)) == len(STRANGE)
    assert len(rows(tmp_path)) == len(load.results(tmp_path)) == len(STRANGE)


@given(st.lists(st.text(min_size=1), unique=True, max_size=30))
def test_no_two_names_have_one_folder(students):
    folders = [grades.safe_name(student) for student in students]
    assert len(set(folders)) == len(students)
    assert all("/" not in folder and folder not in ("", ".", "..") and len(folder.encode()) < 255 for folder in folders)
    assert not set(folders) & set(grades.OWN)


@given(st.lists(st.binary(min_size=1), unique=True, max_size=30))
@example([b"a\x1b", b"a\\x1b", b"a\xff", b"a\\xff"])
def test_no_two_file_names_become_one_student_and_none_steers_a_terminal(names):
    students = [grades.printable(os.fsdecode(name)) for name in names]
    assert len(set(students)) == len(names)
    assert all(student.isprintable() for student in students)


def test_a_file_where_a_students_folder_is_to_be_costs_no_row(tmp_path):
    (tmp_path / "ada").write_text("mine")
    with pytest.raises(OSError, match="ada"):
        grades.write([result("ada"), result("ben")], tmp_path)
    assert [row["student"] for row in rows(tmp_path)] == ["ada", "ben"]
    assert (tmp_path / "ada").read_text() == "mine"
    assert (tmp_path / "ben" / "calculus.json").exists()


def test_newest_of_a_students_files_counts(tmp_path):
    (tmp_path / "ada").mkdir()
    for name in ("ada/one.ipynb", "ada/two.ipynb", "ada.ipynb"):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (1e9, 1e9))
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        for name in ("three.ipynb", "four.ipynb"):
            archive.writestr(zipfile.ZipInfo(name, (2001, 1, 1, 0, 0, 0)), "{}")
    found = layouts.submissions(tmp_path)
    assert [each.student for each in found] == ["ada"] * 5
    pairs = [(each, result("ada", number)) for number, each in enumerate(found)]
    (first,), (second,) = grades.newest_of_each(pairs), grades.newest_of_each(pairs[::-1])
    assert first.message.partition(";")[0] == second.message.partition(";")[0], "of the same age: by name, not by lane"
    assert "5 notebooks for this lab" in first.message


@pytest.mark.parametrize("name", ["submitted", "grades.csv", "feedback", "x.ipynb.zip"])
def test_a_file_where_a_folder_is_expected_is_a_row_with_a_reason(tmp_path, name):
    (tmp_path / name).write_text("no folder")
    (tmp_path / "ben.ipynb").write_text("{}")
    found = {each.student: each for each in layouts.submissions(tmp_path)}
    (other,) = set(found) - {"ben"}
    assert found[other].path is None
    assert found[other].problem
    assert found["ben"] == Submission("ben", tmp_path / "ben.ipynb")
