"""An answer is found by whatever way a notebook binds it, and no stub hides it."""

import pytest

from autograder.inside import magics, source

PLAIN = "def mine(x):\n    return x + 1"
WAYS = {
    "a walrus": "(f := mine)",
    "a walrus that is printed": "print(f := mine)",
    "a walrus in a test": "assert (f := mine)(1) == 2",
    "text": "exec('f = mine')",
    "the table of names": "globals().update(f=mine)",
    "a loop": "for f in [mine]: pass",
    "a block": "import contextlib\nwith contextlib.nullcontext(mine) as f: pass",
    "a pattern": "match mine:\n    case f: pass",
    "a part of a tuple": "f, other = mine, 3",
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
