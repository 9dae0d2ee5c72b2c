"""A door is of its function's kind: it knocks, and nothing else of the function changes, on every Python."""

import contextlib
import gc
import inspect
import sys
import types
import weakref

import pytest

from autograder.inside import compilers, doors


def plain(a, b=2):
    return a + b


def generator(a, b=2):
    received = yield a
    yield received
    return b


async def coroutine(a, b=2):
    return a + b


async def async_generator(a, b=2):
    yield a
    yield b


def closure():
    kept = 3

    def inner(a):
        return a + kept

    return inner


@pytest.fixture(autouse=True)
def of_its_kind(monkeypatch):
    """Test here what Python 3.13 asks for."""
    monkeypatch.setattr(doors, "OF_ITS_KIND", True)
    monkeypatch.setattr(doors, "_made", {})


@pytest.fixture
def barred():
    """Put doors before functions; returns the list of what knocked."""
    here, knocks = doors.Doors(), []

    def bar(function):
        here.bar(function, knocks.append)
        return knocks

    yield bar
    here.open_all()


@pytest.mark.parametrize("function", [plain, generator, coroutine, async_generator, closure()])
def test_kind_of_code_stays(function, barred):
    """Python 3.13 warns where a function's new code is of another kind, and warnings are errors here."""
    own = function.__code__
    barred(function)
    assert doors.is_door(function.__code__)
    assert function.__code__.co_flags & doors.KIND == own.co_flags & doors.KIND
    assert function.__code__.co_freevars == own.co_freevars
    assert doors.behind(function.__code__).__code__ is own


def awaited(waiting):
    """Run what waits for nothing, without a loop: one of a browser may be running in this thread."""
    with pytest.raises(StopIteration) as ended:
        waiting.send(None)
    return ended.value.value


def test_what_is_called_is_the_function(barred):
    knocks = barred(plain)
    assert plain(1, b=5) == 6
    assert barred(generator) is knocks
    running = generator(1)
    assert (next(running), running.send(7)) == (1, 7)
    with pytest.raises(StopIteration) as ended:
        next(running)
    assert ended.value.value == 2
    barred(coroutine)
    assert awaited(coroutine(1)) == 3
    barred(async_generator)

    async def both():
        return [x async for x in async_generator(1)]

    assert awaited(both()) == [1, 2]
    assert knocks == [(1,)] * 4


def test_doors_open_again(barred):
    own = plain.__code__
    barred(plain)
    here = doors.Doors()
    here.bar(plain, print)  # there is a door already
    assert not here.barred
    assert inspect.iscoroutinefunction(coroutine)
    assert plain.__code__ is not own


@pytest.mark.parametrize("function", [plain, generator, coroutine, async_generator, closure()])
def test_open_door_keeps_no_listener(function):
    """What hears the knocks holds a check's guard, and so the student's cells: it ends with its check."""

    class Listener:
        def __call__(self, args):
            pass

    here, listener = doors.Doors(), Listener()
    alive = weakref.ref(listener)
    for _ in range(2):
        here.bar(function, listener)
        here.open_all()
    del listener
    gc.collect()
    assert alive() is None


def test_door_of_a_students_function_ends_with_its_check():
    """A copy of its code knocks in each later check of the same guard; then both are freed."""
    cells, knocks, here = {"__name__": "__main__"}, [], doors.Doors()
    exec("def f():\n    return 5", cells)
    here.bar(cells["f"], knocks.append)
    copied = types.FunctionType(cells["f"].__code__, {})
    here.open_all()
    here.bar(cells["f"], knocks.append)
    assert copied() == 5
    assert knocks == [()]
    assert doors.is_door(copied.__code__)
    here.open_all()
    door = weakref.ref(here.made[cells["f"]])
    del cells, copied, here
    gc.collect()
    assert door() is None


def test_context_manager_has_a_door(barred):
    @contextlib.contextmanager
    def opened():
        yield 5

    knocks = barred(opened.__wrapped__)
    with opened() as value:
        assert value == 5
    assert knocks == [()]


def test_numba_compiles_what_has_a_door(barred):
    numba = pytest.importorskip("numba")
    compilers.see_behind_doors()
    compiled = numba.njit(plain)
    knocks = barred(plain)
    assert compiled(1, 5) == 6
    assert knocks == []


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python 3.13 asks that an entry is of its function's kind")
def test_plain_entry_knocks_at_the_call(barred, monkeypatch):
    monkeypatch.setattr(doors, "OF_ITS_KIND", False)
    knocks = barred(generator)
    running = generator(1)
    assert knocks == [(1,)]
    assert next(running) == 1
