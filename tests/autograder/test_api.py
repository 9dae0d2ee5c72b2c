"""`check(...)` in a notebook: a verdict within a second, in words, on any front end, whatever the code does."""

import re
import threading
import time
import warnings

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from autograder import api, check, feedback
from autograder.boundary.limits import TimeUp, time_limit
from autograder.results import CheckResult, ExerciseResult
from hpcdl import points
from hpcdl.points import PointsRecord


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setattr(api, "record", PointsRecord())


def shown(code: str, name: str) -> api.Feedback:
    namespace = {}
    exec(code, namespace)
    (exercise,) = api.find(name)
    return api.feedback(exercise, namespace)


def test_all_right_is_one_line(solution):
    assert repr(shown(solution["mean"], "tiny.mean")) == "✓ mean: 60 / 60 points    Lab total so far: 60 / 100"


COUNTS_THREADS = """
import torch
def mean(x):
    assert torch.get_num_threads() == 1
    return x.mean()
"""


def test_torch_has_one_thread_as_in_grading():
    torch.set_num_threads(2)
    try:
        text = repr(shown(COUNTS_THREADS, "tiny.mean"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert text.startswith("✓ mean")


WARNS = """
import threading, warnings, torch
def mean(x):
    warnings.warn("of a cell")
    theirs = ("of torch", UserWarning, torch.__file__, 1)
    thread = threading.Thread(target=warnings.warn_explicit, args=theirs)
    thread.start()
    thread.join()
    return x.mean()
"""


def test_warnings_about_lines_of_files_are_not_shown():
    """On whatever thread: they have paths of ours, and a check says what is wrong."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        assert repr(shown(WARNS, "tiny.mean")).startswith("✓ mean")
    assert {str(each.message) for each in log} == {"of a cell"}


def test_full_points_open_the_questions_on_the_program(solution):
    shown(solution["mean"], "tiny.mean")
    assert points.is_solved("tiny.mean")
    shown("def mean(x):\n    return x.sum()", "tiny.mean")
    assert not points.is_solved("tiny.mean")


def test_not_done_and_not_defined_are_friendly_and_without_a_traceback():
    text = repr(shown("def mean(x):\n    raise NotImplementedError", "tiny.mean"))
    assert text.startswith("○ mean: not done yet")
    assert "`mean` is not done yet: write it where it says `raise NotImplementedError`." in text
    text = repr(shown("def meen(x):\n    return x", "tiny.mean"))
    assert "`mean` is not defined. Found `meen`: rename it? Run the cell that defines it" in text
    assert "Traceback" not in text


def test_a_wrong_answer_shows_mistake_call_got_expected_and_where():
    text = repr(shown("def mean(x):\n    return x.sum()", "tiny.mean"))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith("✗ mean: 0 / 60 points")
    assert lines[1] == "✗ The mean of the elements. (0 / 40)"
    assert lines[2] == "This is the sum: divide by the number of elements."
    assert re.match(r"mean\(x\) is [\d.]+, expected [\d.]+\.", lines[3])
    assert [line.split()[0] for line in lines if line.startswith(("call", "got", "expected"))] == [
        "call",
        "got",
        "expected",
    ]
    assert "– x is the same after the call. (0 / 20)" in lines
    assert "Waits for “The mean of the elements.”." in lines


def test_the_students_own_exception_shows_their_line_and_none_of_ours():
    text = repr(shown("def mean(x):\n    y = x.sum()\n    return y / zero", "tiny.mean"))
    assert "Your code raised NameError: name 'zero' is not defined" in text
    assert "line 3 of mean" in text
    assert ".py" not in text


def test_loop_costs_one_limit(solution):
    start = time.monotonic()
    code = "def count(n):\n    while True:\n        pass\n" + solution["count"].partition("yield i\n")[2]
    result = shown(code, "tiny.count").result
    assert time.monotonic() - start < 30  # a busy machine gives the code up to four times its limit
    assert [check.status for check in result.checks] == ["failed", "passed"]


def test_prints_are_shown_apart_and_cut(solution):
    found = shown("def mean(x):\n    print('here ' * 10_000)\n    return x.mean()", "tiny.mean")
    assert found.printed.startswith("here here")
    assert len(found.printed) < 2 * api.PRINTED
    assert "<summary>Your code printed</summary>" in found._repr_html_()


def test_the_total_follows_the_notebook_and_remembers_what_was_better(solution):
    shown(solution["mean"], "tiny.mean")
    assert shown(solution["count"], "tiny.count").total == "Lab total so far: 100 / 100"
    worse = shown("def mean(x):\n    return x", "tiny.mean")
    assert worse.total == "Lab total so far: 40 / 100"
    assert "An earlier version of yours had 60 points" in repr(worse)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("tiny.maen", "'tiny.mean'"), ("tinny", "'tiny'"), ("mean", "tiny"), ("", "Say which exercise"), ("tiny.", None)],
)
def test_an_unknown_name_gets_the_nearest(name, nearest):
    if nearest is None:
        assert len(api.find(name)) == 2
        return
    with pytest.raises(api.UnknownExerciseError, match=nearest):
        check(name)


def test_a_function_of_an_exercise_is_a_name_of_it():
    assert [exercise.name for exercise in api.find("tiny.double")] == ["count"]


def test_whatever_comes_from_the_student_is_escaped():
    evil = "<script>alert(1)</script>"
    verdict = CheckResult(
        "a", evil, 1, message=f"`{evil}` {evil}", mistake=evil, call=evil, got=evil, source=evil, line=1
    )
    page = feedback.html(ExerciseResult("t.e", evil, 1, [verdict]), evil, printed=evil, note=evil)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 8


def test_html_and_text_say_the_same():
    found = shown("def mean(x):\n    return x.sum()", "tiny.mean")
    page = re.sub(r"<style>.*?</style>|<[^>]+>", " ", found._repr_html_(), flags=re.DOTALL)
    words = set(re.findall(r"\w+", page))
    assert set(re.findall(r"\w+", repr(found))) <= words


def loop():
    while True:
        pass


def test_a_time_limit_leaves_another_timer_running():
    import signal

    rang = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    try:
        others = signal.setitimer(signal.ITIMER_REAL, 30)
        with pytest.raises(TimeUp), time_limit(0.1):
            loop()
        left, _ = signal.setitimer(signal.ITIMER_REAL, *others)
        assert 25 < left < 30
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_time_limit_works_in_another_thread():
    caught = []

    def work():
        try:
            with time_limit(0.2):
                loop()
        except TimeUp as up:
            caught.append(up)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=10)
    assert len(caught) == 1


def test_a_real_kernel_shows_html_with_a_twin_in_text():
    cells = [
        "from autograder import check\nimport torch",
        "def mse_loss(w, X, y):\n    return ((X @ w - y) ** 2).sum()",
        "def mse_grad(w, X, y):\n    raise ValueError('mine')",
        'check("gradient_descent.mse_grad")',
        'check("gradient_descent.mse_grda")',
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=60, allow_errors=True).execute()
    data = notebook.cells[3].outputs[0].data
    assert 'class="hpcdl-check hpcdl-failed"' in data["text/html"]
    assert "✗ mse_grad: 0 / 10 points" in data["text/plain"]
    assert "raise ValueError(&#x27;mine&#x27;)" in data["text/html"]
    error = notebook.cells[4].outputs[0]
    assert "Did you mean 'gradient_descent.mse_grad'" in "".join(error.traceback)
    assert "api.py" not in "".join(error.traceback)
