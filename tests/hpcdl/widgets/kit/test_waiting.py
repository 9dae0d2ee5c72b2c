"""What a cell says while an exercise is unsolved."""

import pytest

from hpcdl.comm import RankError, simulate
from hpcdl.widgets import when_solved


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


def test_an_unsolved_function_is_named_when_ranks_of_the_simulated_machine_meet_it(capsys):
    def tree_reduce(comm):
        raise NotImplementedError

    with when_solved():
        simulate(tree_reduce, 2)
    assert "Waiting for your" in capsys.readouterr().out


def test_a_mistake_of_a_rank_keeps_its_traceback():
    with pytest.raises(RankError, match="ZeroDivisionError"), when_solved():
        simulate(lambda comm: 1 / 0, 2)
