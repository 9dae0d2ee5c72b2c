"""Whatever a course system hands out, each student has a line: a notebook, or the reason why there is none."""

import io
import os
import time
import unicodedata
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.grading import layouts
from autograder.grading.layouts import Submission, owner, submissions
from autograder.grading.submission import joined
from autograder.inside.notebook import HAND_IN, PACK
from autograder.outputs import roster


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
    return root


def zipped(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def names(found, root=None):
    return [(s.student, s.path.name if s.path else None) for s in found]


def problem(found):
    (only,) = found
    assert only.path is None
    return only.problem


def test_plain_folder_of_students(tmp_path):
    put(
        tmp_path, "ada/work/lab.ipynb", "ben.ipynb", "ada/.ipynb_checkpoints/lab.ipynb", ".DS_Store", "__MACOSX/x.ipynb"
    )
    zipped(tmp_path / "cyd.zip", {"deep/lab.ipynb": "{}", "__MACOSX/deep/._lab.ipynb": "x", "data.bin": "0"})
    assert names(submissions(tmp_path)) == [("ada", "lab.ipynb"), ("ben", "ben.ipynb"), ("cyd", "lab.ipynb")]


@pytest.mark.parametrize("course_file", ["gradebook.db", "nbgrader_config.py", "source/lab1/lab1.ipynb", None])
def test_a_course_folder_of_nbgrader_is_read_from_submitted(tmp_path, course_file):
    put(tmp_path, "submitted/ada/lab1/a.ipynb", "submitted/ada/lab1/timestamp.txt", "submitted/ben/lab1/a.ipynb")
    if course_file:
        put(tmp_path, course_file)
    expected = [("ada", "a.ipynb"), ("ben", "a.ipynb")]
    assert names(submissions(tmp_path)) == expected
    assert names(submissions(tmp_path / "submitted")) == expected


def test_a_student_who_is_called_submitted_is_a_student(tmp_path):
    put(tmp_path, "submitted/x.ipynb", "ada/x.ipynb")
    assert names(submissions(tmp_path)) == [("ada", "x.ipynb"), ("submitted", "x.ipynb")]


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("lovelaceada_4711_90210_02_gradient_descent.ipynb", "lovelaceada_4711"),
        ("lovelaceada_LATE_4711_90210_lab-2.ipynb", "lovelaceada_4711"),
        ("o_brien_anne_12_34_x.ipynb", "o_brien_anne_12"),
        ("müllerjörg_12_34_x.ipynb", "müllerjörg_12"),
        ("late_12_34_x.ipynb", "late_12"),
        ("anon_aB3dE_77_x.ipynb", "anon_aB3dE"),
        ("lovelaceada_4711_text.html", "lovelaceada_4711"),
        ("Ada Lovelace_4711_assignsubmission_file_", "Ada Lovelace_4711"),
        ("Ada Lovelace_4711_assignsubmission_file", "Ada Lovelace_4711"),
        ("Ada Lovelace_4711_assignsubmission_file_lab.ipynb", "Ada Lovelace_4711"),
        ("Participant_9_assignsubmission_onlinetext_onlinetext.html", "Participant_9"),
        ("Lab 2_alovelace_attempt_2026-11-20-23-59-00_lab.ipynb", "alovelace"),
        ("lab_2_a.lovelace_attempt_2026-11-20-23-59-00.txt", "a.lovelace"),
        ("Lab 2_ada_attempt_2026-11-20-23-59-00_x_ben_attempt_2027-11-20-23-59-00_y.ipynb", "ada"),
        ("lovelaceada_4711_90210_x_ben_attempt_2026-11-20-23-59-00_y.ipynb", "lovelaceada_4711"),
        ("Lab 2_ada_attempt_2.ipynb", "Lab 2_ada_attempt_2"),
        ("ben.ipynb", "ben"),
        ("lab_02.ipynb", "lab_02"),
        ("-rf.ipynb", "-rf"),
    ],
)
def test_a_name_says_whose_the_file_is(tmp_path, name, student):
    assert owner(tmp_path / name) == student


def test_the_last_attempt_in_blackboard_counts(tmp_path):
    at = "Lab 2_ada_attempt_2026-1{}-20-23-59-00"
    put(tmp_path, *(f"{at.format(month)}{rest}" for month in (0, 1) for rest in ("_lab.ipynb", "_tools.py", ".txt")))
    put(tmp_path, "Lab 2_ben_attempt_2026-11-20-23-59-00.txt")
    first, last, ben = submissions(tmp_path)
    assert (first.student, last.student, ben.student, ben.path) == ("ada", "ada", "ben", None)
    os.utime(first.path)
    assert sorted((last, first), key=lambda each: each.order) == [first, last]
    assert "tools.py" in {name for name, _ in last.beside}


APART = ["müllerjörg_12_34_x.ipynb", "Anna Müller_101_assignsubmission_file_", "zoë.ipynb", "Ångström"]


@pytest.mark.parametrize("name", APART)
def test_a_name_whose_accents_are_stored_apart_is_the_same_name(tmp_path, name):
    apart = unicodedata.normalize("NFD", name)
    assert apart != name
    assert owner(tmp_path / apart) == owner(tmp_path / name)
    student = owner(tmp_path / name)
    person = roster.Person(1, "", (), (unicodedata.normalize("NFD", student.rpartition("_")[0] or student),))
    assert person.fits(student.rpartition("_")[0] or student) == roster.BY_NAME


def test_results_of_an_earlier_run_are_no_student(tmp_path):
    put(tmp_path, "ada/lab.ipynb", "ben/lab.ipynb", "grades/grades.csv", "grades/.cache/x", "grades/feedback/ada.html")
    found, strays = layouts.find(tmp_path)
    assert names(found) == [("ada", "lab.ipynb"), ("ben", "lab.ipynb")]
    assert strays == ["grades"]


def test_canvas_and_moodle_downloads(tmp_path):
    put(tmp_path, "lovelaceada_1_2_lab.ipynb", "lovelaceada_1_3_report.pdf", "babbagec_LATE_4_5_report.pdf")
    put(tmp_path, "Eva Ö_7_assignsubmission_file_/lab.ipynb", "Eva Ö_7_assignsubmission_onlinetext_/onlinetext.html")
    found = submissions(tmp_path)
    assert names(found) == [
        ("Eva Ö_7", "lab.ipynb"),
        ("babbagec_4", None),
        ("lovelaceada_1", "lovelaceada_1_2_lab.ipynb"),
    ]
    assert "report.pdf' is not a notebook" in found[1].problem


def test_the_download_of_a_class_is_graded_as_the_zip_file_it_is(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("lab.ipynb", "inner")
    archive = zipped(
        tmp_path / "class.zip",
        {"lovelaceada_1_2_lab.ipynb": "outer", "babbagec_4_5_lab.zip": inner.getvalue(), "noneno_6_7_x.pdf": "-"},
    )
    found = submissions(archive)
    assert names(found) == [
        ("babbagec_4", "lab.ipynb"),
        ("lovelaceada_1", "lovelaceada_1_2_lab.ipynb"),
        ("noneno_6", None),
    ]
    assert [s.path.read_text() for s in found if s.path] == ["inner", "outer"]


@pytest.mark.parametrize(
    "name", ["../evil.ipynb", "/evil.ipynb", "a/../../evil.ipynb", "..\\evil.ipynb", "C:\\evil.ipynb"]
)
def test_path_out_of_the_archive_is_refused(tmp_path, name):
    archive = zipped(tmp_path / "in" / "class.zip", {name: "x", "ada.ipynb": "{}"})
    found = submissions(archive)
    assert names(found)[0] == ("ada", "ada.ipynb")
    assert "is a path outside it" in found[1].problem
    assert [path.name for path in tmp_path.rglob("*evil*")] == []
    assert not os.path.exists("/evil.ipynb")


@pytest.mark.parametrize("name", ["class.zip", "class/ada.zip"])
def test_each_file_out_of_the_archive_is_named_in_one_row(tmp_path, name):
    outside = ["../../evil.ipynb", "/evil.ipynb", "C:\\evil.ipynb"]
    archive = zipped(tmp_path / name, dict.fromkeys(outside, "x"))
    (found,) = submissions(archive if name == "class.zip" else archive.parent)
    assert found.problem == "; ".join(f"{path!r} in the zip file is a path outside it; {PACK}" for path in outside)


def test_of_many_reasons_ten_are_said():
    assert joined(map(str, range(12))) == "; ".join(map(str, range(10))) + "; and 2 more"


def test_a_link_in_a_zip_file_is_refused(tmp_path):
    link = zipfile.ZipInfo("ada.ipynb")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert problem(submissions(tmp_path)).endswith("link or device; pack the file itself")


def test_a_bomb_stops_at_the_limit_and_the_others_are_graded(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "MAX_MEMBER", 1 << 20)
    zipped(tmp_path / "bomb.zip", {"lab.ipynb": b"\0" * (3 << 20)})
    put(tmp_path, "zoe.ipynb")
    found = submissions(tmp_path)
    assert names(found) == [("bomb", None), ("zoe", "zoe.ipynb")]
    assert "unpacks to more than 1 MiB; clear its outputs" in found[0].problem


def test_many_files_that_are_small_share_one_limit(tmp_path):
    archive = zipped(tmp_path / "a.zip", {f"{i}.ipynb": b"\0" * 600_000 for i in range(4)})
    target = tmp_path / "t"
    target.mkdir()
    problems = layouts.unpack(archive, target, 1 << 20)
    assert len(problems) == 3
    assert sum(path.stat().st_size for path in target.iterdir()) == 600_000


def test_unreadable_archives_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "MAX_MEMBERS", 3)
    zipped(tmp_path / "many.zip", {f"{i}.ipynb": "" for i in range(4)})
    deep = b""
    for _ in range(3):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr("next.zip" if deep else "lab.ipynb", deep or b"{}")
        deep = inner.getvalue()
    (tmp_path / "deep.zip").write_bytes(deep)
    (tmp_path / "broken.zip").write_bytes(b"PK\3\4 no")
    whole = zipped(tmp_path / "cut.zip", {"lab.ipynb": os.urandom(5000)}).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[:100] + b"\xff" * 50 + whole[150:])
    locked = bytearray(zipped(tmp_path / "locked.zip", {"lab.ipynb": "{}"}).read_bytes())
    locked[6] |= 1  # the flag of a password, in the file's header and in the directory
    locked[locked.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    said = {s.student: s.problem for s in submissions(tmp_path)}
    assert "4 files, more than 3" in said["many"]
    assert "inside a zip file" in said["deep"]
    assert "cannot be read" in said["broken"]
    assert "cannot be read" in said["cut"]
    steps = {"many": PACK, "deep": HAND_IN, "broken": "pack it again", "cut": "pack it again"}
    assert all(said[name].endswith(f"; {step}") for name, step in steps.items())
    assert said["locked"] == "'lab.ipynb' in the zip file needs a password: pack it again without one"


def test_the_newest_file_in_a_zip_keeps_its_date(tmp_path):
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("new.ipynb", (2026, 5, 4, 3, 2, 0)), "{}")
        archive.writestr(zipfile.ZipInfo("old.ipynb", (2025, 5, 4, 3, 2, 0)), "{}")
    times = {s.path.name: time.localtime(s.path.stat().st_mtime).tm_year for s in submissions(tmp_path)}
    assert times == {"new.ipynb": 2026, "old.ipynb": 2025}


def test_a_name_no_file_system_takes_costs_one_line(tmp_path):
    archive = zipped(tmp_path / "class.zip", {"x" * 300 + ".ipynb": "{}", "ada.ipynb": "{}"})
    found = submissions(archive)
    assert found[0].student == "ada"
    assert "cannot be read" in found[1].problem


# The writer of Python's own zipfile cuts a name at NUL, and fails on what is left when that is nothing.
@given(st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=30), max_size=5))
def test_no_member_name_leaves_the_folder(tmp_path_factory, given_names):
    root = tmp_path_factory.mktemp("any")
    target = root / "inside"
    target.mkdir()
    members = {f"{name}.ipynb".encode("utf-8", "replace").decode(): "{}" for name in given_names}
    layouts.unpack(zipped(root / "a.zip", members), target, 1 << 20)
    assert {path.name for path in root.iterdir()} == {"a.zip", "inside"}
    assert all(isinstance(s, Submission) for s in submissions(root / "a.zip"))
