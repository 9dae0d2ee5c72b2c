"""A notebook is graded as one lab: the sheet and the page name the others in it, and say what to do."""

import contextlib
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import batch, layouts, other_labs
from autograder.grading.submitted import lab_of
from autograder.inside.notebook import parse
from autograder.outputs import html, instructor
from autograder.outputs.load import for_student

PREDICT = "def predict(w, X):\n    return X @ w\n"
CALL = 'check("perceptron.predict")'
SLUGS = exercises.LABS  # without the labs that tests add
LABS = Path(__file__).parents[3] / "labs"


@pytest.mark.parametrize("lab", [None, "tiny"], ids=["seen from the notebook", "named"])
def test_the_sheet_and_the_page_say_what_is_not_graded(tmp_path, zygote, monkeypatch, write_notebook, solution, lab):
    monkeypatch.setattr(batch, "Zygote", lambda **_: contextlib.nullcontext(zygote))
    write_notebook("ada.ipynb", *solution.values(), PREDICT, CALL, hpcdl={"lab": "tiny"})
    only = exercises.load(lab) if lab else None
    ((_, found),) = batch.grade_all(layouts.submissions(tmp_path / "submissions"), b"s", only, allow_weak=True)
    sentence = (
        "the notebook also has exercises of perceptron, not graded here: hand in a notebook for each lab, or grade it "
        "with --lab perceptron into another --out"
    )
    assert (found.score, found.summary()) == (100, "" if lab else sentence)
    assert (sentence in html.page(for_student(found))) == (not lab)
    assert (("ada", f"tiny: {sentence}") in instructor.flags([found])) == (not lab)


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([PREDICT, CALL], ["perceptron"]),
        ([CALL, PREDICT + "check('backprop.train')\ndef train(): ...\n"], ["perceptron", "backprop"]),
        ([PREDICT], []),  # a helper may have the name of another lab's function
        ([CALL], []),
        ([PREDICT, 'check("perceptron.nothing")', 'check("nothing.predict")'], []),
        (["def mean(x): ...", 'check("tiny.mean")'], []),
    ],
)
def test_an_exercise_counts_where_it_is_answered_and_checked(cells, found, tiny, notebook_text):
    assert other_labs.others(parse(notebook_text(*cells).encode()), tiny) == found


@pytest.mark.parametrize("slug", SLUGS)
def test_a_merged_lab_is_seen_without_its_checks(slug, notebook_text):
    of, other = "perceptron" if slug != "perceptron" else "ddp", [c for c in build.code(slug) if "check(" not in c]
    content = parse(notebook_text(*build.code(of), *other).encode())
    assert other_labs.others(content, exercises.load(of)) == [slug]


def test_no_solved_lab_holds_another(notebook_text):
    for slug in SLUGS:
        content = parse(notebook_text(*build.code(slug)).encode())
        assert other_labs.others(content, exercises.load(slug)) == [], slug


def test_no_lab_holds_another():
    for path in sorted(LABS.glob("[0-9]*.ipynb")):
        content = parse(path.read_bytes())
        assert other_labs.said(content, lab_of(content, path)) == "", path.name
