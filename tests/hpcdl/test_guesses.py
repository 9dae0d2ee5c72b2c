"""The ledger: guesses over kernels and notebooks, half a line, a read-only folder, and a new beginning."""

import json
import math

import pytest
from typer.testing import CliRunner

from hpcdl import guesses, labs, progress
from hpcdl.cli import app
from hpcdl.guesses import Guess, Ledger, summary


@pytest.fixture
def path(tmp_path):
    return tmp_path / guesses.NAME


def test_another_kernel_knows_a_guess_and_what_came_of_it(path):
    one, other = Ledger(path), Ledger(path)
    made = Guess("ddp.speed_up", 4, unit="times")
    one.add(made)
    assert other.guesses == {"ddp.speed_up": made}, "a notebook that is open already sees it, too"
    other.add(made.seen(2))
    (kept,) = Ledger(path).guesses.values()
    assert (kept.guess, kept.truth, kept.unit, kept.lab) == (4, 2, "times", "ddp")
    assert kept.error == pytest.approx(math.log10(2))


def test_a_line_has_the_name_the_guess_the_truth_the_error_and_the_time(path):
    Ledger(path).add(Guess("ddp.speed_up", 1.0, unit="s", when="2026-11-23T07:00:00+00:00").seen(100.0))
    assert json.loads(path.read_text()) == {
        "name": "ddp.speed_up",
        "guess": 1.0,
        "truth": 100.0,
        "unit": "s",
        "error": -2.0,
        "when": "2026-11-23T07:00:00+00:00",
    }


def test_a_reset_forgets_and_keeps_the_lines(path):
    ledger = Ledger(path)
    ledger.add(Guess("a.x", 1))
    ledger.reset()
    assert ledger.guesses == {}
    ledger.add(Guess("a.y", 1))
    assert list(Ledger(path).guesses) == ["a.y"]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "line",
    [
        *('{"name": "ddp.sp', "[1]", '{"guess": 3}', '{"name": 1, "guess": 1}', "\x00"),
        '{"name": "a.y", "guess": [1]}',
        '{"name": "a.y", "guess": 1, "error": "large"}',
        '{"name": "a.y", "guess": 1, "when": "yesterday"}',
    ],
)
def test_a_line_that_is_none_of_ours_is_passed_over(path, line):
    Ledger(path).add(Guess("a.x", 1))
    with path.open("a") as file:
        file.write(line + "\n")
    assert list(Ledger(path).guesses) == ["a.x"]


def test_where_nothing_can_be_written_guesses_are_kept_in_memory(tmp_path):
    ledger = Ledger(tmp_path / "no folder" / guesses.NAME)
    ledger.add(Guess("a.x", 1))
    assert list(ledger.guesses) == ["a.x"]


def test_place_of_the_file(monkeypatch, tmp_path):
    monkeypatch.delenv(guesses.VARIABLE)
    assert guesses.file_in(tmp_path) == tmp_path / ".guesses.jsonl"
    for value, found in (("/elsewhere/mine", "/elsewhere/mine"), ("", "None"), (guesses.OFF, "None")):
        monkeypatch.setenv(guesses.VARIABLE, value)
        assert str(guesses.file_in(tmp_path)) == found


@pytest.mark.parametrize(
    ("guess", "truth", "error"),
    [(10, 1, 1), (1, 10, -1), (3, 3, 0), (0, 1, None), (1, 0, None), (1, math.inf, None), ("a", "b", None)],
)
def test_errors_are_logarithms_of_ratios(guess, truth, error):
    assert guesses.error(guess, truth) == (error if error is None else pytest.approx(error))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([], "No guesses yet: the labs ask for them, above some experiments."),
        ([(1, 1)], "1 number guessed: 1 within a factor of 2, 1 within a factor of 10."),
        ([(2, 1), (5, 1), (1, 10), (11, 1)], "4 numbers guessed: 1 within a factor of 2, 3 within a factor of 10."),
        ([("a", "a"), ("a", "b")], "1 of 2 choices right."),
        ([(4, 1)] * 50, "50 numbers guessed: 0 within a factor of 2, 50 within a factor of 10. "
         "On the whole 4 times too high."),
        ([(None, 1)], "No guesses yet: the labs ask for them, above some experiments."),
    ],
)  # fmt: skip
def test_the_summary_counts(made, said):
    assert summary(Guess(f"a.x{i}", guess).seen(truth) for i, (guess, truth) in enumerate(made)) == said


@pytest.fixture
def folder(tmp_path, monkeypatch, path):
    """A lab in a folder of a student's, with a guess."""
    monkeypatch.delenv(guesses.VARIABLE)
    (tmp_path / "07_ddp.ipynb").write_bytes((labs.CLONE / "07_ddp.ipynb").read_bytes())
    Ledger(path).add(Guess("ddp.speed_up", 4, unit="times").seen(2))
    return tmp_path


def test_the_progress_tells_the_guesses(folder):
    assert "1 number guessed" in progress.table(folder).caption


def test_the_command_forgets_them(folder, path):
    said = CliRunner().invoke(app, ["reset", "guesses", "--folder", str(folder)])
    assert (said.exit_code, said.output.strip()) == (0, "Guesses forgotten: 1.")
    assert Ledger(path).guesses == {}
