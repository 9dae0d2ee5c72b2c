"""What a cell says while an exercise is unsolved."""

import pytest

from hpcdl import points
from hpcdl.comm import RankError, simulate
from hpcdl.widgets import passed, when_solved
from hpcdl.widgets.kit import waiting


@pytest.fixture(autouse=True)
def nothing_checked(monkeypatch):
    """Other tests in this process call `check`, too."""
    monkeypatch.setattr(points, "unsolved", {})


def mse_grad():
    raise NotImplementedError


def test_an_unsolved_function_is_named_in_a_sentence(capsys):
    with when_solved():
        mse_grad()
    assert capsys.readouterr().out.startswith("Waiting for your mse_grad")


def test_a_mistake_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), when_solved():
        print(1 / 0)


def test_solved_functions_run(capsys):
    with when_solved():
        print("it runs")
    assert capsys.readouterr().out == "it runs\n"


def test_unsolved_function_on_ranks_is_named(capsys):
    def tree_reduce(comm):
        raise NotImplementedError

    with when_solved():
        simulate(tree_reduce, 2)
    assert "Waiting for your" in capsys.readouterr().out


def test_a_mistake_of_a_rank_keeps_its_traceback():
    with pytest.raises(RankError, match="ZeroDivisionError"), when_solved():
        simulate(lambda comm: 1 / 0, 2)


@pytest.fixture
def wrong(monkeypatch):
    """What the last checks found wanting: `mean`, and something that no cell here uses."""
    found = {"lab.mean": ("mean",), "lab.other": ("other", "another")}
    monkeypatch.setattr(points, "unsolved", found)
    return found


def cell(code: str) -> None:
    """Run a cell of a notebook, which has a namespace of its own."""
    exec(compile(code, "<cell>", "exec"), {"when_solved": when_solved, "__name__": "__main__"})


MEAN = """
def mean(xs):
    return sum(xs) / 0

def given(xs):
    return mean(xs)

class Net:
    def forward(self):
        return given([1.0])
"""


@pytest.mark.parametrize("use", ["mean([1.0])", "given([1.0])", "Net().forward()", "(lambda: mean([1.0]))()"])
def test_error_of_a_wrong_function_names_it(use, wrong, capsys):
    cell(f"{MEAN}\nwith when_solved():\n    {use}")
    first, place, advice = capsys.readouterr().out.splitlines()
    assert first == "ZeroDivisionError: float division by zero"
    assert place.startswith("In your mean, line 3 of its cell")
    assert advice.startswith("`mean`: not all checks pass yet, and this cell builds on it. Mend it first")


def test_all_wrong_answers_are_named_if_unclear(wrong, capsys):
    cell("x = [1.0]\nwith when_solved():\n    x[3]")
    first, advice = capsys.readouterr().out.splitlines()
    assert first == "IndexError: list index out of range"
    assert advice.startswith("`mean`, `other`, `another`: not all checks pass yet, and this cell builds on them.")


def test_wrong_function_on_ranks_is_named(wrong, capsys):
    cell(f"{MEAN}\nfrom hpcdl.comm import simulate\nwith when_solved():\n    simulate(lambda comm: mean([1.0]), 2)")
    said = capsys.readouterr().out
    assert "ZeroDivisionError" in said
    assert "`mean`: not all checks pass yet" in said


def test_endless_loop_is_stopped(wrong, capsys, monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE", 0.2)
    cell("def mean(xs):\n    while True:\n        pass\nwith when_solved():\n    mean([1.0])")
    first, place, advice = capsys.readouterr().out.splitlines()
    assert first == "TooLong: stopped after 0.2 s"
    assert place.startswith("In your mean, line ")
    assert advice.startswith("`mean`: not all checks pass yet")


def test_cell_without_wrong_answers_has_no_limit(wrong, capsys, monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    cell("import time\nwith when_solved():\n    time.sleep(0.2)\n    print('done')")
    assert capsys.readouterr().out == "done\n"


def test_a_cell_that_a_wrong_answer_would_harm_does_not_run(wrong, capsys):
    for exercise in ("lab.right", "lab.mean"):
        with when_solved():
            passed(exercise)
            print("it runs")
    assert capsys.readouterr().out.startswith("it runs\nWaiting for your mean to pass its checks: mend it")


def test_once_all_is_solved_a_mistake_keeps_its_traceback(wrong):
    wrong.clear()
    with pytest.raises(ZeroDivisionError):
        cell(f"{MEAN}\nwith when_solved():\n    mean([1.0])")
