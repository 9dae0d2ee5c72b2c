"""A folder around the students' folders, as in downloads, is not a student, and the files next to it are named."""

import zipfile

import pytest

from autograder.grading import layouts, tops

TWO = ("ada/lab.ipynb", "ben/lab.ipynb")
MARKED = ("Ada_1_assignsubmission_file/lab.ipynb", "Ben_2_assignsubmission_file/lab.ipynb")
AROUND = {  # the folders around the students' folders, and the files next to them
    "Abgaben": (),
    "Lab 2": ("README.txt",),
    "Übung 2/Abgaben": ("Übung 2/Übung 2.xlsx",),
    "a/b/c": ("a/index.html", "a/b/log.csv"),
}


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return root


def packed(root, *names):
    path = root / "class.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return path


def students(found):
    return [each.student for each in found]


@pytest.mark.parametrize("top", AROUND)
def test_a_zip_file_with_folders_around_students(tmp_path, top):
    found, strays = layouts.find(packed(tmp_path, *AROUND[top], *(f"{top}/{name}" for name in TWO)))
    assert students(found) == ["ada", "ben"]
    assert sorted(strays) == sorted(name.rpartition("/")[2] for name in AROUND[top])


@pytest.mark.parametrize("pack", [put, packed])
def test_a_folder_around_a_systems_marks(tmp_path, pack):
    found, strays = layouts.find(pack(tmp_path, "notes.txt", *(f"Abgaben/{name}" for name in MARKED)))
    assert (students(found), strays) == (["Ada_1", "Ben_2"], ["notes.txt"])


def test_a_class_that_looks_like_one_student_is_said(tmp_path):
    found, strays = layouts.find(put(tmp_path, "README.txt", *(f"Lab 2/{name}" for name in TWO)))
    assert [*tops.sentences(tmp_path, found, strays)] == [
        "Left out, since no student is named: README.txt.",
        f"All 2 notebooks count as those of one student, 'Lab 2'. If its 2 folders are students', grade "
        f"{tmp_path / 'Lab 2'} instead.",
    ]
    found, strays = layouts.find(tmp_path / "Lab 2")
    assert (students(found), [*tops.sentences(tmp_path / "Lab 2", found, strays)]) == (["ada", "ben"], [])


@pytest.mark.parametrize("names", [TWO, ("ada/lab.ipynb", "ada/more.ipynb"), ("ada.ipynb",)])
def test_other_classes_need_no_sentence(tmp_path, names):
    found, strays = layouts.find(put(tmp_path, *names))
    assert [*tops.sentences(tmp_path, found, strays)] == []


def test_a_link_is_no_top_folder(tmp_path):
    put(tmp_path / "elsewhere", *MARKED)
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "link").symlink_to(tmp_path / "elsewhere")
    (found,) = layouts.submissions(tmp_path / "class")
    assert (found.student, found.path) == ("link", None)


def test_a_deep_zip_file_is_read(tmp_path):
    found, _ = layouts.find(packed(tmp_path, f"{'x/' * 500}lab.ipynb"))
    assert students(found) == ["x"]
