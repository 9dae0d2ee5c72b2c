"""A question above an experiment: what it takes, what waits for it, and what it says in the end."""

import math

import nbformat
import pytest
from nbclient import NotebookClient

from hpcdl.guesses import NAME, VARIABLE, Guess, Ledger
from hpcdl.machine import QuietTogether
from hpcdl.widgets import guess, guessed, reveal, when_solved
from hpcdl.widgets.kit import guessing
from hpcdl.widgets.kit.guessing import NotGuessed, positive, sentence

SPEED_UP = "ddp.speed_up"


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """The ledger of a student who sits before the page."""
    ledger = Ledger(tmp_path / NAME)
    monkeypatch.setattr(guessing, "ledger", lambda: ledger)
    monkeypatch.setattr(guessing, "is_interactive", lambda: True)
    monkeypatch.setattr(guessing, "_shown", {})
    return ledger


def test_a_cell_waits_for_its_guess_in_one_sentence(kept, capsys):
    with when_solved():
        guessed(SPEED_UP)
        print("it ran")
    assert capsys.readouterr().out.startswith("First your guess: answer the question above")
    assert NotGuessed("a sentence")._render_traceback_() == ["a sentence"]


def test_a_guess_opens_the_cell_and_the_truth_goes_into_the_ledger_once(kept, capsys):
    question = guess(SPEED_UP, "How many times as fast?", unit="times")
    question.receive({"guess": "12"})
    assert question.said == "Your guess: 12 times. Now run the cell below."
    for truth in (31, 40):
        with when_solved():
            guessed(SPEED_UP)
            reveal(SPEED_UP, truth)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "You guessed 12 times, it was 31 times: 2.58 times too low."
    assert "it was 40 times" in second
    assert kept.guesses[SPEED_UP].truth == 31
    assert (question.said, question.seen) == (first, True)


@pytest.mark.parametrize(("measured", "truth"), [(True, 40), (False, 31)])
def test_what_a_busy_machine_measured_is_not_kept(kept, capsys, monkeypatch, measured, truth):
    guess(SPEED_UP, "How many times as fast?", unit="times").receive({"guess": "12"})
    for seconds, seen in ((3.0, 31), (0.0, 40)):  # in which other programs worked and this one waited
        clocks = {"clock": iter([0, 5, 5]), "waited": iter([0, seconds]), "others": iter([0, seconds])}
        quiet = QuietTogether(**{name: values.__next__ for name, values in clocks.items()})
        monkeypatch.setattr(guessing, "QuietTogether", lambda quiet=quiet: quiet)
        guessed(SPEED_UP)
        reveal(SPEED_UP, seen, measured=measured)
    assert kept.guesses[SPEED_UP].truth == truth
    assert [guessing.BUSY in line for line in capsys.readouterr().out.splitlines()] == [measured, False]


def test_who_would_rather_see_sees(kept, capsys):
    question = guess(SPEED_UP, "How many times as fast?", unit="times")
    question.receive({"see": True})
    assert "No guess." in question.said
    guessed(SPEED_UP)
    reveal(SPEED_UP, 31.0)
    assert capsys.readouterr().out == "It was 31 times.\n"


def test_a_guess_can_be_changed_until_the_truth_is_seen(kept):
    question = guess(SPEED_UP, "How many times as fast?")
    for text in ("12", "13"):
        question.receive({"guess": text})
        question.receive({"again": True})
        assert question.said == ""
    assert kept.guesses[SPEED_UP].guess == 13


def test_a_choice_is_right_or_wrong_and_its_truth_may_come_at_once(kept):
    question = guess("a.shape", "Which?", choices=("(3,)", "(3, 1)"), truth=lambda: str((3, 1)))
    question.receive({"guess": ""})
    assert (question.said, question.problem) == ("", "Choose one of them first.")
    question.receive({"guess": "(3,)"})
    assert (question.said, question.seen) == ("You guessed (3,): it was (3, 1).", True)
    assert kept.guesses["a.shape"].error is None


def test_what_is_no_number_above_0_is_asked_again(kept):
    question = guess(SPEED_UP, "How many times as fast?", unit="times")
    question.receive({"guess": "many"})
    assert "A number above 0" in question.problem
    assert not kept.guesses
    question.receive({"guess": "3 times"})
    assert question.problem == ""
    assert kept.guesses[SPEED_UP].guess == 3


def test_an_open_guess_never_raises(kept, capsys):
    """Outside `when_solved` too: "Run All" would stop there."""
    guess(SPEED_UP, "How many times as fast?", unit="times")
    guessed(SPEED_UP)
    assert "“How many times as fast?”" in capsys.readouterr().out
    with pytest.raises(ZeroDivisionError), when_solved():
        1 / 0  # noqa: B018
    guessed(SPEED_UP)


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), (" 0.5 ", 0.5), ("1,200", 1200), ("1,234,567.5", 1234567.5), ("3e6", 3e6)]
)
def test_numbers_are_read_as_people_write_them(text, number):
    assert positive(text) == number


@pytest.mark.parametrize("text", ["", "-1", "0", "nan", "inf", "1,2", "ten"])
def test_other_texts_are_none(text):
    with pytest.raises(ValueError, match="A number above 0"):
        positive(text)


@pytest.mark.parametrize(
    ("made", "truth", "said"),
    [
        (100, 101, "You guessed 100, it was 101: that close."),
        (130, 100, "You guessed 130, it was 100: 30 % too high."),
        (100, 6672, "You guessed 100, it was 6,672: 66.7 times too low."),
        (1e9, 1, "You guessed 1e+09, it was 1: 1e+09 times too high."),
        (1, 0, "You guessed 1, it was 0."),
        (1, math.inf, "You guessed 1, it was inf."),
        ("a", "a", "You guessed a: right."),
    ],
)
def test_the_sentence_says_how_far(made, truth, said):
    assert sentence(Guess("a.x", made).seen(truth)) == said


BOTH = {"choices": ("1", "2"), "unit": "s"}


@pytest.mark.parametrize(
    ("name", "options"), [("speed_up", {}), ("a.b c", {}), ("a.x", {"choices": ("one",)}), ("a.x", BOTH)]
)
def test_an_authors_mistake_names_the_value(name, options):
    with pytest.raises(ValueError, match=name):
        guess(name, "Which?", **options)


def test_where_nobody_is_there_experiments_run_and_nothing_is_kept(kept, monkeypatch, capsys):
    monkeypatch.setattr(guessing, "is_interactive", lambda: False)
    guessed(SPEED_UP)
    reveal(SPEED_UP, 31.0)
    assert capsys.readouterr().out == "It was 31.\n"
    assert not kept.guesses
    assert guess(SPEED_UP, "How fast?", unit="s")._repr_mimebundle_() == {"text/plain": "Guess first: How fast? (s)"}


ASK = (
    "from hpcdl.widgets import guess, guessed, reveal, when_solved\n"
    "question = guess('ddp.speed_up', 'How many times as fast?', unit='times')\nquestion"
)
RUN = "with when_solved():\n    guessed('ddp.speed_up')\n    print('it ran')\n    reveal('ddp.speed_up', 31)"
ANSWER = "question.receive({'guess': '12'})"


def kernel(folder, *sources, stdin: bool = True) -> list[str]:
    """What the cells say in a fresh kernel, run by a page, which can answer `input()`, or by a program."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel():
        client.kc.allow_stdin = stdin
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
    return ["".join(out.get("text") or out.data["text/plain"] for out in cell.outputs) for cell in notebook.cells]


@pytest.mark.labs  # starts three kernels
def test_a_guess_made_yesterday_counts_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    _, waits, *_ = kernel(tmp_path, ASK, RUN, ANSWER)
    assert waits.startswith("First your guess")
    assert kernel(tmp_path, ASK, RUN)[1] == "it ran\nYou guessed 12 times, it was 31 times: 2.58 times too low."
    (tmp_path / NAME).unlink()
    assert kernel(tmp_path, ASK, RUN, stdin=False) == [
        "Guess first: How many times as fast? (times)",
        "it ran\nIt was 31 times.",
    ]
    assert not (tmp_path / NAME).exists()
