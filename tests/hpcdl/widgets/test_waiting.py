"""What a cell says while an exercise is unsolved."""

import pytest

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
