"""A results folder as grading writes it, with students whose names and answers attack the page that shows them."""

import pytest

from autograder.grading import grades
from autograder.results import CheckResult, ExerciseResult, LabResult

EVIL = "<script>alert(1)</script>"


def a_result(student, passed=2, **extra):
    checks = [
        CheckResult("value", "The mean of `x`.", 40, "passed" if passed > 0 else "failed", seed=12345),
        CheckResult("secret", "A hidden one.", 20, "passed" if passed > 1 else "failed", hidden=True, seed=678),
    ]
    for check in checks:
        if not check.passed:
            check.kind, check.message, check.got, check.expected = "values", f"mean(x) is {EVIL}", "SECRET-GOT", "7"
            check.call, check.detail, check.mistake = "mean(SECRET-INPUT)", "File grader.py", "This is the sum."
    done = ExerciseResult("tiny.mean", "mean", 60, checks)
    blank = [CheckResult("items", "It gives 0, 1.", 40, "not_done", "not_done", "`count` is not done yet.")]
    return LabResult(student, "tiny", 100, [done, ExerciseResult("tiny.count", "count", 40, blank)], **extra)


@pytest.fixture
def make_result():
    return a_result


@pytest.fixture
def class_results():
    return [
        a_result("lovelaceada_4711"),
        a_result("ben", passed=1),
        a_result(EVIL, passed=0, notes=[f"cell 3: {EVIL}"], isolation="process limits"),
        a_result("=cmd()|'/c calc'!A0", passed=1),
        LabResult("doedan_12", "", 0, status="ungradable", message=f"the file is empty {EVIL}"),
    ]


@pytest.fixture
def folder(tmp_path, class_results):
    grades.write(class_results, tmp_path / "results")
    return tmp_path / "results"
