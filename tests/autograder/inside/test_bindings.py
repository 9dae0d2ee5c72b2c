"""An answer is found by whatever way a notebook binds it, and no stub hides it."""

import pytest

from autograder.inside import magics, source

PLAIN = "def f_(x):\n    return x + 1"
WAYS = {
    "a walrus": "(f := f_)",
    "a walrus that is printed": "print(f := f_)",
    "a walrus in a test": "assert (f := f_)(1) == 2",
    "text": "exec('f = f_')",
    "the table of names": "globals().update(f=f_)",
    "a loop": "for f in [f_]: pass",
    "a block": "import contextlib\nwith contextlib.nullcontext(f_) as f: pass",
    "a pattern": "match f_:\n    case f: pass",
    "a part of a tuple": "f, other = f_, 3",
}


def needed(*cells):
    labelled = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(cells, start=1)]
    statements, notes = source.needed(labelled, ["f"])
    names: dict = {"__name__": "__main__"}
    for label, text in statements:
        exec(compile(text, label, "exec"), names)
    return names, notes


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_found_whatever_binds_it(way):
    names, notes = needed(PLAIN, WAYS[way], "print(f(3))")
    assert (names["f"](1), notes) == (2, [])


STUB = 'def f(x):\n    "Doc."\n    raise NotImplementedError'
IN_A_BLOCK = f"if True:\n    {STUB.replace(chr(10), chr(10) + '    ')}"
METHOD = "    def {}(self):\n        raise NotImplementedError\n"
CLASS_STUB = f"class f:\n{METHOD.format('a')}{METHOD.format('b')}"
ABSTRACT = """
class f:
    def __new__(cls, x):
        return x + 1

    def a(self):
        raise NotImplementedError("for a subclass")
"""
INSIDE = "def f(x):\n    def todo():\n        raise NotImplementedError\n    return x + 1"
BASE = "def f(x):\n    class Base:\n        def go(self):\n            raise NotImplementedError\n    return x + 1"
TRIED = "try:\n    def f(x):\n        return x + 1\nexcept ImportError:\n    pass"
HIDDEN = [(answer, stub) for answer in (INSIDE, BASE, TRIED) for stub in (STUB, IN_A_BLOCK, CLASS_STUB)]


@pytest.mark.parametrize(("answer", "stub"), [*HIDDEN, (ABSTRACT, CLASS_STUB)])
def test_no_stub_hides_an_answer_with_one_inside(answer, stub):
    for cells in ((answer, stub), (stub, answer)):
        names, notes = needed(*cells)
        assert (names["f"](1), notes) == (2, [])


TIMED = """
TIMES = []
def timed(g):
    def inner(*args):
        TIMES.append(len(args))
        return g(*args)
    return inner
"""


def test_a_decorated_answer_leaves_experiments_behind():
    """What the decorator keeps is not what the answer returns, which an experiment may change."""
    experiment = "curves = {}\nfor i in range(3):\n    path = f(i)\n    curves[i] = path\n    path[0] = i"
    names, notes = needed(TIMED, "@timed\ndef f(x):\n    return [x]", experiment)
    assert ([*names["f"](1), *names["TIMES"]], names.keys() & {"curves", "path"}, notes) == ([1, 1], set(), [])


def test_what_an_answer_returns_is_changed_by_its_other_name():
    names, _ = needed("table = [3]", "def f(x):\n    return table", "row = f(1)\nrow.append(4)")
    assert names["f"](1) == [3, 4]
