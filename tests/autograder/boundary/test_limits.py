"""A time limit does not leave a module half imported: it would fail for the rest of the process."""

import importlib
import sys
import time

import pytest

from autograder.boundary import limits


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """The name of a module whose import takes longer than the limit."""
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.4)\nvalue = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "slow_to_import"
    sys.modules.pop("slow_to_import", None)


def test_an_import_ends_before_its_time_is_up(slow):
    def answer():
        importlib.import_module(slow)
        time.sleep(5)

    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        answer()
    assert sys.modules[slow].value == 1


def test_one_that_never_ends_is_stopped_all_the_same(slow, monkeypatch):
    monkeypatch.setattr(limits, "IMPORT", 0.1)
    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        importlib.import_module(slow)
    assert slow not in sys.modules
