"""Questions on a student's own program: what is asked, what is kept, and programs that fail or never end."""

import re

import pytest
import torch

from hpcdl import guesses, points
from hpcdl.guesses import NAME, OWN, Guess, Ledger
from hpcdl.points import Checked, PointsRecord
from hpcdl.widgets import when_solved, your_program
from hpcdl.widgets.kit import guessing, own_runs
from hpcdl.widgets.kit.your_program import fails, questions

EXERCISE = "ddp.ring_all_reduce"


def up(comm):
    """Reduce to rank 0 in a tree of at most eight ranks."""
    x, incoming = torch.ones(10), torch.empty(10)
    for distance in (4, 2, 1):
        if comm.rank < min(distance, comm.size - distance):
            comm.recv(incoming, comm.rank + distance)
            x += incoming
        elif distance <= comm.rank < 2 * distance:
            comm.send(x, comm.rank - distance)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """The ledger of a student who sits before the page and has full points."""
    ledger = Ledger(tmp_path / NAME)
    monkeypatch.setattr(guessing, "ledger", lambda: ledger)
    monkeypatch.setattr(guessing, "is_interactive", lambda: True)
    points.solved.add(EXERCISE)
    return ledger


def ask(program=up, p=6):
    return your_program(EXERCISE, program, p=p, on="10 numbers")


def asked_by(program, p):
    return {each.what: each for each in questions(program, p)}


def test_three_questions_have_the_answers_of_the_run():
    asked = asked_by(up, 6)
    assert list(asked) == ["bytes", "line", "absent"]
    assert (asked["bytes"].text, asked["bytes"].truth) == ("how many bytes does rank 4 send?", 40)
    assert [choice.partition(": ")[2] for choice in asked["line"].choices] == [
        "comm.recv(incoming, comm.rank + distance)",
        "comm.send(x, comm.rank - distance)",
    ]
    assert asked["line"].truth == asked["line"].choices[1], "ranks 3 and 5 send to rank 1; rank 0 receives from it"
    assert asked["absent"].truth == "3"
    assert re.fullmatch(
        r"Rank 0 waits on line \d+: comm.recv.*\nRanks 3, 5 wait on line \d+: comm.send.*", asked["absent"].note
    )


def test_a_tie_is_not_asked():
    """Of four ranks, one sends to rank 1 and one receives from it."""
    assert list(asked_by(up, 4)) == ["bytes", "absent", "seconds"]


def test_it_is_asked_where_a_rank_waits_if_all_do():
    def up_and_on(comm):
        up(comm)
        comm.barrier()

    asked = asked_by(up_and_on, 6)["where"]
    assert "On which line does rank 5 wait?" in asked.text
    assert asked.truth.endswith("comm.send(x, comm.rank - distance)")
    assert len(asked.choices) == 3


def swap(comm):
    """Exchange a number with a partner, which the last of an odd number of ranks lacks."""
    comm.sendrecv(torch.ones(1), comm.rank ^ 1, torch.empty(1), comm.rank ^ 1)


def third_sends(comm):
    comm.broadcast(torch.ones(1), root=2)


def never_with_two(comm):
    while comm.size == 2:
        pass
    third_sends(comm)


@pytest.mark.parametrize(
    ("program", "truth", "note"),
    [
        (swap, "all odd numbers", "p = 1: rank 0 raised ValueError: rank 0: sendrecv: dest is 1"),
        (third_sends, "1 and 2", "p = 1: rank 0 raised ValueError: rank 0: broadcast: root is 2"),
        (lambda comm: comm.recv(torch.empty(0), 6 - comm.size), "all of them", "p = 1: rank 0 raised"),
        (lambda comm: 1 / (comm.size - 3), None, None),
        (up, None, None),
    ],
)
def test_it_is_asked_with_how_many_ranks_it_fails(program, truth, note):
    asked = fails(own_runs.failures(program, 6), 6)
    assert (asked and asked.truth) == truth
    assert asked is None or asked.note.startswith(note)


def test_a_number_of_ranks_that_never_ends_is_not_asked_about(monkeypatch):
    monkeypatch.setattr(own_runs, "PATIENCE", 0.2)
    assert own_runs.failures(never_with_two, 6) == {}


def test_failing_ranks_come_after_bytes():
    assert list(asked_by(swap, 6)) == ["bytes", "fails", "absent"]
    assert len(asked_by(swap, 6)["fails"].choices) == 5


def test_the_machines_own_collectives_have_no_bytes():
    asked = asked_by(lambda comm: comm.all_reduce(torch.ones(10)), 4)
    assert list(asked) == ["absent", "seconds"]
    assert asked["seconds"].truth == pytest.approx(2 * 10.04)


def test_answers_are_kept_apart_from_guesses(kept):
    asked = ask()
    assert [question.question.partition(":")[0] for question in asked] == [
        "Your ring_all_reduce, p = 6, 10 numbers",
        "The same program",
        "The same program",
    ]
    assert "It was" not in repr(asked[0]), "a saved page shows it"
    asked[0].receive({"guess": "120"})
    said = "You guessed 120 bytes, it was 40 bytes: 3 times too high.\n40 bytes by line "
    assert asked[0].said.startswith(said)
    assert asked[0].said.endswith(": comm.send(x, comm.rank - distance)")
    asked[2].receive({"guess": "3"})
    assert asked[2].said.startswith("You guessed 3: right.\nRank 0 waits on line ")
    asked[1].receive({"see": True})
    assert asked[1].said.startswith("It was line ")
    assert [q.seen for q in asked] == [True] * 3
    again = Ledger(kept.journal.path)
    assert again.guesses == {}
    assert [guess.guess for guess in again.answers.values()] == [120, "3", None]
    assert all(name.startswith(f"{OWN}{EXERCISE}.") for name in again.answers)
    assert guesses.summary(again.guesses.values()).startswith("No guesses yet")
    assert ask()[0].said == asked[0].said, "an answer of yesterday counts"


def test_another_program_is_asked_again(kept):
    ask()[0].receive({"guess": "40"})
    assert ask()[0].seen

    def twice(comm):
        up(comm)
        up(comm)

    assert (ask(twice)[0].said, ask(twice)[0].seen) == ("", False)
    ask(twice)[0].receive({"guess": "80"})
    assert ask(twice)[0].seen


def test_answers_move_with_their_exercise(tmp_path):
    Ledger(tmp_path / NAME).add(Guess(f"{OWN}consistency.downpour.bytes", 1.0))
    assert list(Ledger(tmp_path / NAME).answers) == [f"{OWN}hogwild.downpour.bytes"]


@pytest.mark.parametrize("inside", [True, False])
def test_before_full_points_one_sentence_says_what_is_missing(kept, capsys, inside):
    points.solved.clear()
    points.unsolved[EXERCISE] = ("ring_all_reduce",)
    if inside:
        with when_solved():
            ask(lambda comm: pytest.fail("it must not run"))
    else:
        assert ask(lambda comm: pytest.fail("it must not run")) == []
    said = capsys.readouterr().out
    assert said.startswith("Waiting for your ring_all_reduce: ")
    assert len(said.splitlines()) == 1


def test_full_points_of_an_earlier_kernel_count(monkeypatch, tmp_path):
    monkeypatch.setenv(points.VARIABLE, str(tmp_path / points.NAME))
    assert not points.is_solved(EXERCISE)
    record = PointsRecord(tmp_path / points.NAME)
    for reached, solved in ((10.0, True), (5.0, False), (10.0, True), (None, False)):
        record.add(Checked(EXERCISE, reached, 10.0))
        assert points.is_solved(EXERCISE) is solved


def test_a_program_that_raises_asks_nothing(kept, capsys):
    def broken(comm):
        raise ValueError("no such chunk")

    with when_solved():
        assert ask(broken) == []
    assert "No questions about your ring_all_reduce: on 6 ranks with 10 numbers, " in (said := capsys.readouterr().out)
    assert "ValueError: no such chunk" in said


def test_a_program_that_never_ends_is_stopped(kept, capsys, monkeypatch):
    monkeypatch.setattr(own_runs, "PATIENCE", 0.1)

    def endless(comm):
        while True:
            comm.rank += 0

    with when_solved():
        assert ask(endless) == []
    assert "it did not end within 0.1 s" in capsys.readouterr().out


def test_a_program_that_fails_without_a_rank_is_not_asked_about_it(kept):
    def careless(comm):
        x = torch.zeros(1)
        if comm.rank < 2:
            comm.isend(x, 1 - comm.rank)
            comm.irecv(torch.empty(1), 1 - comm.rank)
            comm.compute(1.0)

    assert asked_by(careless, 2).keys() == {"bytes", "seconds"}


def test_a_run_changes_neither_the_output_nor_the_random_numbers(kept, capsys):
    def loud(comm):
        print("here", torch.rand(()).item())
        up(comm)

    torch.manual_seed(0)
    expected = torch.rand(())
    torch.manual_seed(0)
    ask(loud)
    assert torch.rand(()) == expected
    assert "here" not in capsys.readouterr().out


def test_if_guesses_are_off_the_answers_are_printed(kept, capsys, monkeypatch):
    monkeypatch.setattr(guessing, "is_interactive", lambda: False)
    first, *_ = ask()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Your ring_all_reduce, p = 6, 10 numbers: how many bytes does rank 4 send? It was 40 bytes."
    assert sum(line.startswith("The same program: ") for line in said) == 2
    assert first._repr_mimebundle_() == {"text/plain": "\n".join(said[:2])}
    assert not kept.answers
