"""A lab begun from the templates is the one that the instructors' guide explains (tests/autograder/test_readme.py
proves that one), and never overwrites another."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build, new

GUIDE = (Path(__file__).resolve().parents[3] / "autograder" / "README.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"```(?:python|text)\n# (?P<path>\S+)\n(?P<text>.*?)```", re.DOTALL)


def test_the_guide_shows_what_is_written():
    shown = {match["path"]: match["text"] for match in SHOWN.finditer(GUIDE)}
    root = new.PACKAGE.parent
    made = {str(p.relative_to(root)): text for p, text in new.files("averages", 90, "Averages that forget").items()}
    assert made == shown


@pytest.mark.parametrize(
    ("slug", "number", "title", "said"),
    [
        ("My Lab", 90, "x", "named like a Python module"),
        ("class", 90, "x", "named like a Python module"),
        ("averages", 0, "x", "1 to 99"),
        ("averages", 4, "x", "04_backprop.py has it"),
        ("backprop", 90, "x", "there is such a lab"),
        ("averages", 90, " ", "one line of text"),
        ("averages", 90, 'the "best"', "one line of text"),
        ("averages", 90, "two\nlines", "one line of text"),
    ],
)
def test_bad_slug_number_or_title_is_refused(slug, number, title, said):
    with pytest.raises(new.NewLabError, match=said):
        new.files(slug, number, title)


@pytest.mark.parametrize(
    ("number", "behind"), [(99, build.sources()[-1].stem.replace("_", " ", 1)), (5, "04 backprop"), (0, None)]
)
def test_row_stands_in_order_of_numbers(number, behind):
    text = (new.PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    lines = new.with_row(text, number, "| [NEW row").splitlines()
    place = lines.index("| [NEW row")
    assert lines[:place] + lines[place + 1 :] == text.splitlines()
    assert lines[place - 1].startswith(f"| [{behind}]" if behind else "|---")


def test_every_lab_has_its_rows():
    """A lab without its rows in README.md and labs/README.md: `autograder new` writes them; else add them by hand."""
    for path in (new.PACKAGE.parent / "README.md", build.LABS_DIR / "README.md"):
        rows = [int(number) for number in new.LAB_ROW.findall(path.read_text(encoding="utf-8"))]
        assert rows == [int(source.name[:2]) for source in build.sources()], path


def test_a_new_lab_is_listed_behind_the_others():
    text, before, after = Path(exercises.__file__).read_text(encoding="utf-8"), {}, {}
    exec(text, before)
    exec(new.with_lab(text, "averages"), after)
    assert after["LABS"] == (*before["LABS"], "averages")


@pytest.mark.long  # two minutes: the tests of a lab
@pytest.mark.timeout(900)
def test_new_lab_by_the_book_is_green(tmp_path):
    """Follow CONTRIBUTING in a copy of the tree: `new`, `make labs`, `selfcheck`, lint, all tests of that lab."""
    subprocess.run(["git", "clone", "--quiet", new.PACKAGE.parent, tmp_path / "copy"], check=True)

    def python(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "copy")}
        command = [sys.executable, "-m", *arguments]
        ended = subprocess.run(
            command, cwd=tmp_path / "copy", env=environment, capture_output=True, text=True, timeout=280
        )
        assert ended.returncode == 0, f"{arguments}\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
        return ended.stdout

    number = len(list((build.LABS_DIR / "source").glob("[0-9][0-9]_*.py")))
    assert f"labs/source/{number:02}_moving_averages.py" in python("autograder", "new", "moving_averages")
    python("autograder.authors.build")
    python("autograder", "selfcheck", "moving_averages")
    python("ruff", "check", ".")
    python("ruff", "format", "--check", ".")
    python("mypy", "autograder/exercises/moving_averages")
    assert " passed" in python("pytest", "-q", "-n", "0", "-m", "not long", "--lab", "moving_averages")
    asked = ("tests/autograder/authors/test_new.py", "tests/hpcdl/test_kernel.py", "tests/test_package.py")
    python("pytest", "-q", "-n", "0", "-m", "not long and not labs", *asked)
