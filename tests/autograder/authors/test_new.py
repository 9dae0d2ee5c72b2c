"""A lab begun from the templates is the one that the instructors' guide explains (tests/autograder/test_readme.py
proves that one), and never overwrites another."""

import re
from pathlib import Path

import pytest

from autograder.authors import new

GUIDE = (Path(__file__).resolve().parents[3] / "autograder" / "README.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"```python\n# (?P<path>\S+)\n(?P<text>.*?)```", re.DOTALL)


def test_the_guide_shows_what_is_written():
    shown = {match["path"]: match["text"] for match in SHOWN.finditer(GUIDE)}
    root = new.PACKAGE.parent
    made = {str(p.relative_to(root)): text for p, text in new.files("averages", 90, "Averages that forget").items()}
    assert made == shown


@pytest.mark.parametrize(
    ("slug", "number", "said"),
    [
        ("My Lab", 90, "named like a Python module"),
        ("averages", 0, "1 to 99"),
        ("averages", 4, "04_backprop.py has it"),
        ("backprop", 90, "there is such a lab"),
    ],
)
def test_a_name_or_number_that_does_not_do_is_refused(slug, number, said):
    with pytest.raises(new.NewLabError, match=said):
        new.files(slug, number, "x")


def test_the_new_lab_is_the_last_of_the_list():
    text = (new.PACKAGE / "exercises" / "__init__.py").read_text(encoding="utf-8")
    before, after = {}, {}
    exec(text, before)
    exec(new.with_lab(text, "averages"), after)
    assert after["LABS"] == (*before["LABS"], "averages")
