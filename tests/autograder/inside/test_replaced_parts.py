"""An answer may replace any part of Python's library, and a forbidden call is refused all the same."""

import contextlib

import pytest

from autograder.sessions.errors import StudentError

ANSWER = """
import gc, statistics, sys, types
import torch
import hpcdl.nn.perceptron as library

class Open:
    "A context that lets nothing happen."
    def __init__(self, function=None, args=(), kwargs={}):
        self.gen = function(*args, **kwargs) if callable(function) else None
    def __enter__(self):
        return None
    def __exit__(self, *error):
        return False
    def __call__(self, *args, **kwargs):
        return None

INSTEAD = [Open, lambda *args, **kwargs: None, lambda *args, **kwargs: True]
CALLED = [("gc", "get_objects"), ("statistics", "mean")]  # below; what comes instead of these forbids nothing
PARTS = (types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property)

def parts(tops):
    for name, module in sorted(sys.modules.items()):
        if module is None or name.partition(".")[0] not in (tops or sys.stdlib_module_names - {"builtins", "sys"}):
            continue
        for key, value in list(vars(module).items()):
            own = isinstance(value, type) and value.__module__ == name
            if (own or type(value) in PARTS[:2]) and (name, key) not in CALLED:
                yield name, key, None
            for method, part in list(vars(value).items()) if own else ():
                if type(part) in PARTS:
                    yield name, key, method

found, kept = [], []

def count(*tops):
    found[:] = parts(tops)
    return len(found)

def name(i):
    return ".".join(filter(None, found[i]))

def replace(i, kind):
    module, key, method = found[i]
    owner = sys.modules[module]
    owner, key = (vars(owner)[key], method) if method else (owner, key)
    kept.append((owner, key, vars(owner)[key]))
    setattr(owner, key, INSTEAD[kind])

def put_back():
    while kept:
        setattr(*kept.pop())

x = torch.ones(2, 3)

def operator(): return torch.sigmoid(x)
def module(): return statistics.mean([1.0, 2.0])
def closed(): return library.predict(x[0], x)
def frame(): return sys._getframe(0)
def objects(): return gc.get_objects()
def text(): return open(torch.__file__).read(1)
WAYS = [operator, module, closed, frame, objects, text]

def through():
    got = []
    for way in WAYS:
        try:
            got += [way.__name__] if way() is not None else []
        except BaseException:
            pass
    return got
"""
OF_THE_GUARD = ("contextlib", "json", "posixpath", "socket", "struct", "types")  # CI tries these


def started(remote):
    session = remote(ANSWER)
    session.forbid(("aten::*sigmoid*", "statistics"), ())
    session.start_check(10.0)
    return session


@pytest.mark.parametrize("kind", range(3), ids=["a context", "nothing", "true"])
@pytest.mark.parametrize(
    "tops",
    [pytest.param(OF_THE_GUARD, marks=pytest.mark.labs), pytest.param((), marks=pytest.mark.long)],
    ids=["few", "all"],
)
def test_no_replaced_part_lets_a_forbidden_call_through(remote, tops, kind):
    session = started(remote)
    number, holes = session.student.count(*tops), []
    assert session.student.through() == []
    assert number > 100
    for i in range(number):
        try:
            session.start_check(2.0)
            title = session.student.name(i)
            session.student.replace(i, kind)
            if got := session.student.through():
                holes.append((title, got))
            session.student.put_back()
        except StudentError:  # the worker has ended: that gains nothing
            with contextlib.suppress(StudentError):
                session.student.put_back()
            session.close()
            session = started(remote)
            session.student.count(*tops)
    assert not holes


def test_a_call_of_nothing_forbidden_goes_through(remote):
    session = remote(ANSWER)
    session.start_check(10.0)
    assert session.student.through() == ["operator", "module", "closed"]
