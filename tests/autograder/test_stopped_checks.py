"""A check or a simulation that is stopped, at any moment, leaves the kernel as it was."""

import builtins
import contextlib
import io
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from autograder import api
from autograder.authors import build
from autograder.inside import doors
from hpcdl.comm import simulate
from hpcdl.interrupt import whole_imports
from hpcdl.points import PointsRecord

ROOT = Path(__file__).parents[2]
RIGHT = "✓ {}: 10 / 10 points"


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setattr(api, "record", PointsRecord())


class PressAt:
    """Press Ctrl-C in the block, at the `number`-th place where Python looks for signals; count such places.

    It looks where a function begins and where one of C's has returned. The handler is called with the frame that a
    signal would find there.
    """

    def __init__(self, number: int = 0):
        self.number, self.places = number, 0
        self.hook = self.look  # kept here: Python still uses it when `look` has taken it out

    def look(self, frame, event, arg):
        if event not in ("call", "c_return"):
            return
        self.places += 1
        if self.places == self.number:
            sys.setprofile(None)
            handler = signal.getsignal(signal.SIGINT)
            (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    def __enter__(self):
        sys.setprofile(self.hook)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)


def notebook(slug: str, function: str) -> dict:
    """The names of a lab's notebook that `function` needs, and `check`."""
    names = {"check": api.check}
    for cell in build.solved(slug).cells:
        if cell.cell_type == "code" and (cell.source.startswith("import ") or f"def {function}(" in cell.source):
            exec(cell.source, names)
    return names


def said(names: dict, exercise: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(f"check({exercise!r})", names)
    return out.getvalue()


def surroundings() -> dict:
    """What a check changes while it runs."""
    return {
        "doors": sum(doors.is_door(function.__code__) for function in list(doors._made)),
        "finders": list(sys.meta_path),
        "input": builtins.input,
        "stdout": sys.stdout,
        "threads": threading.active_count(),
        "timer": 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 10,  # of a check; the suite's own is longer
        "handlers": (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)),
    }


def pressed(run: Callable[[], object], places: int, draw: random.Random) -> int:
    """Press Ctrl-C at a random one of so many `places` of `run`, which must be interrupted; return the place."""
    while True:
        place = draw.randrange(1, places)
        with warnings.catch_warnings(), contextlib.suppress(KeyboardInterrupt):
            warnings.simplefilter("error")
            with PressAt(place) as press:
                run()
            if press.places < place:
                places = press.places  # this run had fewer: it ended before
                continue
            threading.Event().wait(5)
            pytest.fail(f"the press at place {place} of {places} was lost")
        return place


def stopped_anywhere(slug: str, function: str, moments: int, part: str = "") -> None:
    names, exercise = notebook(slug, function), f"{slug}.{function}"
    right = RIGHT.format(function)
    assert said(names, exercise).startswith(right)

    def check():
        exec(f"check({exercise!r})", names)

    with contextlib.redirect_stdout(io.StringIO()):  # here: pressed inside, it would stay, whatever the check does
        with PressAt() as counted:
            check()
        before, draw = surroundings(), random.Random(function + part)
        for _ in range(moments):
            place = pressed(check, counted.places, draw)
            assert surroundings() == before, f"stopped at place {place} of {counted.places}"
    assert said(names, exercise).startswith(right)


@pytest.mark.labs  # half a minute
@pytest.mark.thinned(1, 2)
@pytest.mark.parametrize(("slug", "function"), [("gradient_descent", "mse_grad"), ("tensors", "pick")])
def test_a_stopped_check_leaves_nothing(slug, function):
    stopped_anywhere(slug, function, 40)


@pytest.mark.long  # minutes; in parts, since at the end of the suite's time limit its timer looks like a check's
@pytest.mark.parametrize("part", "abcde")
@pytest.mark.parametrize(("slug", "function"), [("gradient_descent", "mse_grad"), ("tensors", "pick")])
def test_a_check_stopped_at_500_moments_leaves_nothing(slug, function, part):
    stopped_anywhere(slug, function, 100, part)


def test_a_stopped_simulation_leaves_no_thread():
    """Stop it wherever its own thread looks for signals."""

    def shift(comm):
        x, y = torch.ones(1), torch.empty(1)
        comm.sendrecv(x, dest=(comm.rank + 1) % comm.size, out=y, source=(comm.rank - 1) % comm.size)

    simulate(shift, 3)
    with PressAt() as counted:
        simulate(shift, 3)
    before = threading.active_count()
    for place in range(1, counted.places - 2):
        with pytest.raises(KeyboardInterrupt), whole_imports():  # noqa: PT012
            with PressAt(place):
                simulate(shift, 3)
            threading.Event().wait(5)
        assert threading.active_count() == before, f"stopped at place {place} of {counted.places}"


FIRST_CHECKS = """
import os, random, signal, sys, threading
import torch
from autograder import check

def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).mean()

def mse_grad(w, X, y):
    return 2 / len(y) * X.T @ (X @ w - y)

def first_check(place):
    places = 0
    def look(frame, event, arg):
        nonlocal places
        places += event == "call"
        if places == place:
            os.kill(os.getpid(), signal.SIGINT)
    threading.setprofile(look)  # imports run in a thread of their own
    sys.setprofile(look)
    try:
        check("gradient_descent.mse_grad")
        threading.Event().wait(0.5)
    except KeyboardInterrupt as stopped:
        print(stopped)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    check("gradient_descent.mse_grad")

for place in random.Random(0).sample(range(1, 180_000), 30):
    if os.fork() == 0:
        first_check(place)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.wait()
    assert status == 0, place
    print("place", place, flush=True)
"""


@pytest.mark.long  # minutes
def test_a_first_check_stopped_at_30_moments_is_right_the_next_time():
    """The first check imports parts of torch, which takes seconds: then one presses stop."""
    run = subprocess.run(
        [sys.executable, "-c", FIRST_CHECKS], capture_output=True, text=True, cwd=ROOT, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    *moments, _ = run.stdout.split("place ")
    assert len(moments) == 30
    for moment in moments:
        assert "You stopped the check of `mse_grad`. It can be run again." in moment
        assert RIGHT.format("mse_grad") in moment.splitlines()[-2] + moment.splitlines()[-1]
