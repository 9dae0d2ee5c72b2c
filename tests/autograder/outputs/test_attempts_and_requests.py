"""Earlier attempts are kept and one counts; a request to look at a grade again has its evidence and its answer."""

import contextlib
import os

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from autograder.grading import attempts
from autograder.grading.submission import Submission
from autograder.outputs import adjustments

SUM = "def mean(x):\n    return x.sum()"


def run(*arguments, code=0) -> str:
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ended.exit_code == code, ended.output
    return ended.output


@pytest.fixture
def hand_in(tmp_path, make_result):
    """A function that grades `passed` checks of a student's notebook of the given minute, without running it."""
    out = tmp_path / "results"

    def hand_in(policy, *pairs):
        done = []
        for student, passed, minute in pairs:
            path = tmp_path / f"{student}.ipynb"
            path.write_text(f"{passed} {minute}")
            os.utime(path, (60 * minute, 60 * minute))
            digest = f"{student}{minute:04}".encode()
            done.append((Submission(student, path, digest=digest), make_result(student, passed)))
        return {result.student: result for result in attempts.counting(done, out, policy)}

    hand_in.out = out
    return hand_in


@pytest.mark.parametrize(("policy", "score"), [("last", 40), ("first", 0), ("best", 60)])
def test_policy_says_which_attempt_counts(hand_in, policy, score):
    for minute, passed in enumerate((0, 2, 1), 1):
        found = hand_in(policy, ("ada", passed, minute), ("ben", 1, 1))
    assert found["ada"].score == score
    assert found["ada"].notes == [f"3 attempts with 0, 60, 40 points: the {policy} counts"]
    assert found["ben"].notes == []
    assert [each.result.score for each in attempts.attempts(hand_in.out, "ada")] == [0, 60, 40]
    assert attempts.policy_of(hand_in.out) == policy
    shown = run("attempts", hand_in.out, "--student", "ada").splitlines()
    (counts,) = (line for line in shown if line.startswith("* "))
    assert f"{score} / 100" in counts


def test_regraded_notebook_replaces_its_own_attempt_only(hand_in):
    hand_in("best", ("ada", 1, 1))
    found = hand_in("best", ("ada", 2, 2))
    assert found["ada"].score == 60
    found = hand_in("best", ("ada", 0, 2))
    assert found["ada"].score == 40


def test_damaged_file_loses_no_earlier_attempt(hand_in, tmp_path, make_result):
    hand_in("best", ("ada", 1, 1))
    broken = make_result("ada", 0)
    broken.lab, broken.status, broken.exercises, broken.max_score = "", "ungradable", [], 0
    (kept,) = attempts.counting([(Submission("ada", None, "empty"), broken)], hand_in.out, "best")
    assert (kept.lab, kept.score) == ("tiny", 40)
    (lost,) = attempts.counting([(Submission("ada", None, "empty"), broken)], hand_in.out, "last")
    assert lost.status == "ungradable"


def test_policy_that_is_none_is_refused(hand_in):
    with pytest.raises(ValueError, match="last, first, best"):
        hand_in("newest", ("ada", 1, 1))


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def graded(tmp_path, write_notebook, solution, zygote, tiny, monkeypatch):
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)  # the tiny lab is known in this process only
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(zygote))
    monkeypatch.setattr("autograder.walls.zygote.Zygote", lambda **_: contextlib.nullcontext(zygote))
    write_notebook("ada/lab.ipynb", f"import torch\n{SUM}", solution["count"], hpcdl={"lab": "tiny"})
    submissions, out = tmp_path / "submissions", tmp_path / "results"
    run("grade", submissions, "--out", out, "--allow-weak", "--no-mpi")
    return submissions, out


@pytest.mark.labs("ddp")
def test_request_gets_evidence_then_an_answer(graded, tmp_path):
    submissions, out = graded
    sheet = tmp_path / "wishes.csv"
    sheet.write_text('student,lab,exercise,reason\nada,tiny,mean,"The sum, as the text says"\n')
    assert "1 open request, 0 answered" in run("requests", sheet, submissions, out)
    page = (out / "requests.md").read_text()
    assert "> The sum, as the text says" in page
    assert "0 points in the report, 0 on the same inputs now. Open." in page
    assert "mean(" in page
    assert not (out / "adjustments.csv").exists()

    filled = (out / "requests.csv").read_text().replace("0,0,,", '0,0,3,"The text was unclear"')
    (out / "requests.csv").write_text(filled)
    for _ in range(2):  # given again, an answer counts once
        assert "0 open requests, 1 answered" in run("requests", out / "requests.csv", submissions, out)
    (row,) = adjustments.read(out / "adjustments.csv")
    assert (row.student, row.points, row.said) == ("ada", 3, "request: mean: The text was unclear")


@pytest.mark.labs("ddp")
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("eve,tiny,mean,why", "there is no result of 'eve'"),
        ("ada,tiny,median,why", "has no exercise 'median'"),
        ("ada,tiny,mean,why,,,much", "write points to add"),
    ],
)
def test_row_that_fits_nothing_is_refused(graded, tmp_path, row, said):
    submissions, out = graded
    sheet = tmp_path / "wishes.csv"
    sheet.write_text(f"student,lab,exercise,reason,report,now,grant\n{row}\n")
    assert said in " ".join(run("requests", sheet, submissions, out, code=2).split())
    assert not (out / "requests.csv").exists()
