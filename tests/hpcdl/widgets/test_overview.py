"""Where am I? The cell of the map: points, links, advice, the guesses, and a button that forgets them."""

import shutil

import pytest

from hpcdl import guesses, labs, points
from hpcdl.guesses import Guess, Ledger
from hpcdl.points import Checked, PointsRecord
from hpcdl.progress import progress
from hpcdl.widgets import overview


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two labs in a folder of a student's, with some points and a guess."""
    for variable in (points.VARIABLE, guesses.VARIABLE):
        monkeypatch.delenv(variable)
    for name in ("02_gradient_descent.ipynb", "07_ddp.ipynb"):
        shutil.copy(labs.CLONE / name, tmp_path)
    return tmp_path


def test_the_table_links_to_each_lab_and_says_where_to_go_on(folder):
    assert "Begin with <a href='02_gradient_descent.ipynb'>" in overview.table(progress(folder))
    PointsRecord(folder / points.NAME).add(Checked("ddp.shard_indices", 5, 10))
    shown = overview.table(progress(folder))
    assert "Continue with <a href='07_ddp.ipynb'>" in shown
    assert "5 of 200 points" in shown
    assert "<code>shard_indices</code>" in shown


def test_one_click_forgets_the_guesses(folder):
    ledger = Ledger(guesses.file_in(folder))
    ledger.add(Guess("ddp.speed_up", 4).seen(2))
    view, (button, said) = (part.children for part in overview.guesses(ledger).children)
    picture = view[0].children[0]
    assert "1 number guessed" in picture.tooltip
    button.click()
    assert said.value == "1 guess forgotten; their lines are still in .guesses.jsonl."
    assert button.disabled
    assert "No guesses yet" in picture.tooltip
    assert Ledger(guesses.file_in(folder)).guesses == {}


def test_without_labs_it_is_a_sentence(tmp_path, capsys):
    overview.where_am_i(tmp_path)
    assert "no labs in" in capsys.readouterr().out
