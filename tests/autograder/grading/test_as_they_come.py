"""Files as browsers, archives and course systems leave them: graded, or refused by name; which of several counts."""

import contextlib
import json
import os
import zipfile

import pytest

from autograder.grading import batch, beside, grades, layouts, submitted
from autograder.grading.submission import Submission
from autograder.inside.notebook import UngradableError, parse
from autograder.outputs import instructor, markdown
from autograder.results import CheckResult, ExerciseResult, LabResult


@pytest.fixture
def one_zygote(monkeypatch, zygote):
    monkeypatch.setattr(batch, "Zygote", lambda **_: contextlib.nullcontext(zygote))


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
    return root


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 5, 4, 3, 2, 0)), content)
    return path


def names(found):
    return [(each.student, each.path.name if each.path else None) for each in found]


# -- names of files


@pytest.mark.parametrize("suffix", [".IPYNB", ".Ipynb", ".ipynb.json", ".ipynb.txt", ".IPYNB.TXT", ".ipynb.download"])
def test_what_browsers_make_of_a_name(tmp_path, suffix):
    put(tmp_path, f"ada/lab{suffix}", f"ben{suffix}", f"lovelaceada_1_2_lab{suffix}")
    zipped(tmp_path / "cyd.ZIP", {f"lab{suffix}": "{}"})
    assert names(layouts.submissions(tmp_path)) == [
        ("ada", f"lab{suffix}"),
        ("ben", f"ben{suffix}"),
        ("cyd", f"lab{suffix}"),
        ("lovelaceada_1", f"lovelaceada_1_2_lab{suffix}"),
    ]


def test_a_reason_names_what_lies_there(tmp_path):
    put(tmp_path, "ada/report.pdf", "ada/lab.py")
    (found,) = layouts.submissions(tmp_path)
    assert found.problem == (
        "there is no notebook (.ipynb) in the student's folder; it has 'lab.py', 'report.pdf'; hand in the .ipynb file "
        "that JupyterLab saves"
    )


@pytest.mark.parametrize(
    "stray", ["README.txt", "readme.md", "notes.pdf", "roster.xlsx", "LICENSE", "Instructions.docx"]
)
def test_a_file_beside_folders_is_nobodys(tmp_path, stray):
    put(tmp_path, "ada/lab.ipynb", "ben/lab.ipynb", stray)
    found, strays = layouts.find(tmp_path)
    assert names(found) == [("ada", "lab.ipynb"), ("ben", "lab.ipynb")]
    assert strays == [stray]


def test_beside_notebooks_only_handouts_are_nobodys(tmp_path):
    put(tmp_path, "ada.ipynb", "ben.pdf", "README.txt")
    found, strays = layouts.find(tmp_path)
    assert names(found) == [("ada", "ada.ipynb"), ("ben.pdf", None)]
    assert strays == ["README.txt"]


# -- archives


@pytest.mark.parametrize("top", ["lab02", "Abgaben", "x"])
def test_the_top_folder_of_a_class(tmp_path, top):
    folders = zipped(tmp_path / "class.zip", {f"{top}/ada/lab.ipynb": "{}", f"{top}/ben/lab.ipynb": "{}"})
    marked = zipped(tmp_path / "canvas.zip", {f"{top}/lovelaceada_1_2_lab.ipynb": "{}"})
    named = zipped(tmp_path / f"{top}.zip", {f"{top}/ada.ipynb": "{}", f"{top}/ben.ipynb": "{}"})
    assert [each.student for each in layouts.submissions(folders)] == ["ada", "ben"]
    assert [each.student for each in layouts.submissions(marked)] == ["lovelaceada_1"]
    assert [each.student for each in layouts.submissions(named)] == ["ada", "ben"]


def test_one_student_is_no_top_folder(tmp_path):
    archive = zipped(tmp_path / "class.zip", {"ada/lab01/a.ipynb": "{}"})
    assert [each.student for each in layouts.submissions(archive)] == ["ada"]
    put(tmp_path / "folder", "ada/lab01/a.ipynb", "ada/lab02/a.ipynb")
    assert {each.student for each in layouts.submissions(tmp_path / "folder")} == {"ada"}


def test_too_large_a_notebook_has_its_students_row(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "MAX_MEMBER", 1 << 20)
    large = b"\0" * (2 << 20)
    members = {"ada.ipynb": large, "ben/lab.ipynb": large, "ben/other.ipynb": "{}", "cyd/lab.ipynb": "{}"}
    found = {each.student: each for each in layouts.submissions(zipped(tmp_path / "class.zip", members))}
    assert set(found) == {"ada", "ben", "cyd"}
    assert "'ada.ipynb' in the zip file unpacks to more than 1 MiB" in found["ada"].problem
    problems = [each.problem for each in layouts.submissions(tmp_path / "class.zip") if each.student == "ben"]
    assert sorted(map(bool, problems)) == [False, True]


def test_large_notebooks_of_one_student(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "MAX_STUDENT", layouts.MAX_STUDENT >> 6)
    monkeypatch.setattr(layouts, "MAX_MEMBER", layouts.MAX_MEMBER >> 6)
    large = b" " * (1 << 20)
    archive = zipped(tmp_path / "ada.zip", {"one.ipynb": large, "two.ipynb": large, "three.ipynb": large})
    found = layouts.submissions(archive.parent)
    assert names(found) == [("ada", name) for name in ("one.ipynb", "three.ipynb", "two.ipynb")]


# -- which of several counts


def result(student, points):
    check = CheckResult("value", "It is right.", 10, "passed" if points else "not_done")
    return LabResult(student, "tiny", 10, [ExerciseResult("tiny.mean", "mean", 10, [check])])


def chosen(found, points):
    (only,) = grades.newest_of_each([(each, result("ada", points[each.path.name])) for each in found])
    return only


def dated(path, time):
    path.write_text("{}")
    os.utime(path, (time, time))
    return Submission("ada", path)


def test_a_newer_blank_copy_is_said_loudly(tmp_path):
    found = [dated(tmp_path / "answered.ipynb", 1e9), dated(tmp_path / "blank.ipynb", 2e9)]
    only = chosen(found, {"answered.ipynb": 10, "blank.ipynb": 0})
    said = "the newest, 'blank.ipynb', counts with 0 points, although 'answered.ipynb' has 10: see which one is meant"
    assert said in only.summary()
    assert said in markdown.page(only).replace("\\", "")
    assert [who for who, what in instructor.flags([only]) if said in what] == ["ada"]


def test_equal_times_are_said(tmp_path):
    found = [dated(tmp_path / "a.ipynb", 1e9), dated(tmp_path / "b.ipynb", 1e9)]
    only = chosen(found[::-1], {"a.ipynb": 10, "b.ipynb": 10})
    assert "the last by name of those with the newest time, 'b.ipynb', counts" in only.message


def test_canvas_counts_uploads(tmp_path):
    members = {"lovelaceada_LATE_4711_90210_lab.ipynb": "{}", "lovelaceada_4711_90211_lab-1.ipynb": "{}"}
    found = layouts.submissions(zipped(tmp_path / "class.zip", members))
    assert {each.student for each in found} == {"lovelaceada_4711"}
    (only,) = grades.newest_of_each([(each, result("lovelaceada_4711", 10)) for each in found])
    assert "2 notebooks for this lab; the newest, 'lovelaceada_4711_90211_lab-1.ipynb', counts" in only.summary()


# -- what lies next to a notebook


@pytest.mark.usefixtures("one_zygote")
def test_modules_and_data_come_along(tmp_path, solution):
    text = "from helpers import total\n\ndef mean(x):\n    return total(x) / float(open('data/n.txt').read())\n"
    folder = put(tmp_path / "in", "ada/lab.ipynb") / "ada"
    (folder / "lab.ipynb").write_text(notebook(text, solution["count"]))
    (folder / "helpers.py").write_text("def total(x):\n    return x.sum()\n")
    (folder / "data").mkdir()
    (folder / "data" / "n.txt").write_text("7")
    ((_, found),) = batch.grade_all(layouts.submissions(tmp_path / "in"), b"s", allow_weak=True)
    assert found.score == 100, found.summary()
    assert "'helpers.py', 'data/n.txt' next to the notebook came along" in found.notes


def test_what_is_too_large_is_named(tmp_path):
    folder = put(tmp_path, "ada/lab.ipynb", "ada/b.bin") / "ada"
    with open(folder / "weights.py", "wb") as file:
        file.truncate(3 << 20)
    (folder / "link.py").symlink_to("/etc/passwd")
    (found,) = layouts.submissions(tmp_path)
    _, along = submitted.held(submitted.take(found))
    assert along.notes(b"b.bin") == [
        "'b.bin' next to the notebook came along",
        f"'link.py' next to the notebook did not come along: the file cannot be read: it is a link; {submitted.ITSELF}",
        "'weights.py' next to the notebook did not come along: "
        "the file has 3 MiB, more than 1 MiB; hand in a smaller one",
    ]
    assert beside.Along.unpacked(along.packed()) == along


def test_modules_nearby_come_first(tmp_path):
    """Only so many come along."""
    put(tmp_path, "ada/lab.ipynb", "ada/a/z.py", "ada/b.csv", "ada/z.py", *(f"ada/data/{i:03}.csv" for i in range(200)))
    (found,) = layouts.submissions(tmp_path)
    assert [name for name, _ in found.beside[:3]] == ["z.py", "b.csv", "a/z.py"]
    assert len(submitted.held(found)[1].files) == beside.MOST_FILES


def test_files_of_others_do_not_come_along(tmp_path):
    put(tmp_path, "lovelaceada_1_2_lab.ipynb", "lovelaceada_1_3_helpers.py", "babbagec_4_5_lab.ipynb", "x.py")
    found = {each.student: [name for name, _ in each.beside] for each in layouts.submissions(tmp_path)}
    assert found["lovelaceada_1"] == ["helpers.py"]
    assert found["babbagec_4"] == []


def test_a_changed_module_is_graded_anew(tmp_path):
    put(tmp_path, "ada/lab.ipynb", "ada/helpers.py")
    first, second = (submitted.take(layouts.submissions(tmp_path)[0]) for _ in range(2))
    assert first.digest == second.digest
    (tmp_path / "ada" / "helpers.py").write_text("x = 2")
    assert submitted.take(layouts.submissions(tmp_path)[0]).digest != first.digest


# -- cells that were turned into text


def notebook(*cells, kinds=()):
    kinds = [*kinds, *["code"] * (len(cells) - len(kinds))]
    found = [{"cell_type": kind, "source": source} for kind, source in zip(kinds, cells, strict=True)]
    return json.dumps({"cells": found, "metadata": {"hpcdl": {"lab": "tiny"}}})


@pytest.mark.usefixtures("one_zygote")
@pytest.mark.parametrize(("kind", "said"), [("markdown", "Markdown"), ("raw", "raw")])
def test_a_cell_turned_into_text_is_named(tmp_path, solution, kind, said):
    put(tmp_path, "ada.ipynb")
    (tmp_path / "ada.ipynb").write_text(notebook(solution["mean"], solution["count"], kinds=[kind]))
    ((_, found),) = batch.grade_all(layouts.submissions(tmp_path), b"s", allow_weak=True)
    assert found.score == 40
    sentence = f"ell 1, in which you define `mean`, is a {said} cell: turn it into a code cell"
    assert found.notes == [f"c{sentence}"]
    assert found.exercises[0].checks[0].message == f"`mean` is not defined. C{sentence}."
    assert sentence in " ".join(what for _, what in instructor.flags([found]))


@pytest.mark.usefixtures("one_zygote")
@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("def mean(x: Tensor): return x", "defines it, ended early: NameError: name 'Tensor' is not defined"),
        (
            "import math; mean = math.no",
            "defines it, ended early: AttributeError: module 'math' has no attribute 'no'",
        ),
        ("def mean(x: return x", "defines it, does not compile"),
        ("from helpers import *", "may define it, ended early: ModuleNotFoundError: No module named 'helpers'"),
        ("exec('mean = nothing')", "may define it, ended early: NameError: name 'nothing' is not defined"),
    ],
)
def test_a_cell_that_ends_early_is_named(tmp_path, solution, cell, said):
    put(tmp_path, "ada.ipynb")
    (tmp_path / "ada.ipynb").write_text(notebook(cell, solution["count"]))
    ((_, found),) = batch.grade_all(layouts.submissions(tmp_path), b"s", allow_weak=True)
    assert found.exercises[0].checks[0].message == f"`mean` is not defined. Cell 1, which {said}."


@pytest.mark.parametrize(
    "text", ["My answer:\n\ndef mean(x):\n    return 1", "async def mean(x): ...", "class mean: ..."]
)
def test_text_that_defines_is_named(text):
    found = parse(notebook(text, "x = 1", kinds=["markdown"]).encode())
    assert [*found.asleep(["mean", "count"])] == ["mean"]


@pytest.mark.parametrize("before", ["%%mine", "%%time\n%%mine 3", "\n%%mine --fast", "%%capture out\n%%mine"])
def test_a_cell_under_a_magic_that_grading_does_not_run_is_named(before):
    found = parse(notebook(f"{before}\ndef mean(x):\n    return 1", "x = 1").encode())
    sentence = (
        "cell 1, in which you define `mean`, begins with `%%mine`, which grading does not run: take that line out"
    )
    assert found.asleep(["mean", "count"]) == {"mean": sentence}


def test_a_cell_under_timeit_is_named():
    found = parse(notebook("%%time\n%%timeit -n 3\ndef mean(x):\n    return 1", "x = 1").encode())
    (sentence,) = found.asleep(["mean", "count"]).values()
    assert sentence.endswith("begins with `%%timeit`, which binds no name outside of the cell: take that line out")


@pytest.mark.parametrize("cell", ["%%writefile m.py\ndef mean(x): ...", "%%time\ndef mean(x): ...", "%%bash\nls"])
def test_a_cell_under_another_magic_is_not(cell):
    assert parse(notebook(cell, "x = 1").encode()).texts == []


def test_text_beside_code_is_text(solution):
    found = parse(notebook(solution["mean"], "def mean(x): return 0", kinds=["markdown"]).encode())
    assert found.cells == [("cell 2", "def mean(x): return 0")]
    assert found.asleep(["mean"]) == {}


def test_what_is_no_file_is_said(tmp_path):
    with pytest.raises(UngradableError, match="the file cannot be read: is a directory"):
        submitted.read(tmp_path)
