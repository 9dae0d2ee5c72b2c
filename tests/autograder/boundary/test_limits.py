"""A time limit does not leave a module half imported: it would fail for the rest of the process."""

import importlib
import subprocess
import sys
import threading
import time

import pytest

from autograder.boundary import limits
from hpcdl import lazy
from hpcdl.comm import simulate


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


def test_an_import_ends_in_another_thread_too(slow):
    stopped = []

    def answer():
        try:
            with limits.time_limit(0.05):
                importlib.import_module(slow)
                while True:
                    pass
        except limits.TimeUp:
            stopped.append(sys.modules[slow].value)

    thread = threading.Thread(target=answer)
    thread.start()
    thread.join(timeout=10)
    assert stopped == [1]


def test_an_import_of_a_simulated_rank_ends_first(slow):
    def rank(comm):
        importlib.import_module(slow)
        while True:
            pass

    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        simulate(rank, 1)
    assert sys.modules[slow].value == 1


IN_A_THREAD = """
import sys, threading
from autograder.boundary.limits import TimeUp, time_limit

def answer(seconds):
    try:
        with time_limit(seconds):
            while seconds < 1:
                pass
    except TimeUp:
        pass

for seconds in (0.05, 60):
    thread = threading.Thread(target=answer, args=(seconds,))
    thread.start()
    thread.join()
    sys.setprofile(lambda *_: None)
    answer(60)
    sys.setprofile(None)
"""


def test_a_limit_in_a_thread_leaves_functions_that_a_profile_can_watch():
    subprocess.run([sys.executable, "-c", IN_A_THREAD], check=True, timeout=120)


def test_one_that_never_ends_is_stopped_all_the_same(slow, monkeypatch):
    monkeypatch.setattr(lazy, "OWN_PATIENCE", 0.1)
    with pytest.raises(limits.TimeUp), limits.time_limit(0.05):
        importlib.import_module(slow)
    assert slow not in sys.modules
