"""Points follow effort: lines of the reference's answer, and traps, which are its checks; headers are true."""

import re

import pytest
from scipy.stats import spearmanr

from autograder import exercises
from autograder.authors import build
from hpcdl import labs

FIRST = exercises.LABS[1:9]  # labs 01 to 08


def lines(marked: str) -> int:
    """Lines of code between the marks of a solution."""
    solutions = re.findall(r"# BEGIN SOLUTION\n(.*?)# END SOLUTION", marked, re.DOTALL)
    written = [line.strip() for solution in solutions for line in solution.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in written)


def effort(slug: str) -> dict[str, int]:
    solutions = build.marked(slug)
    return {name: lines(solutions[name]) + len(e.checks) for name, e in exercises.load(slug).exercises.items()}


def test_lines_are_counted_between_the_marks():
    assert lines("def f():\n    # BEGIN SOLUTION\n    # why\n\n    a = 1\n    return a\n    # END SOLUTION\n") == 2


@pytest.mark.parametrize("slug", exercises.LABS)
def test_files_and_tables_have_the_labs_number(slug):
    name = f"{exercises.load(slug).number:02d}_{slug}"
    assert build.source_path(slug).stem == name
    assert [path.stem for path in labs.notebooks(labs.CLONE)].count(name) == 1
    for page in (labs.CLONE / "README.md", labs.CLONE.parent / "README.md"):
        rows = re.findall(
            rf"^\| \[(\d\d) [\w ]+\]\(\S*?(\d\d_{slug})\.ipynb\)", page.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert rows == [(name[:2], name)]


@pytest.mark.parametrize("slug", FIRST)
def test_points_follow_effort(slug):
    lab, efforts = exercises.load(slug), effort(slug)
    graded = [exercise.points for exercise in lab.exercises.values()]
    assert sum(graded) == 100
    assert min(graded) >= 5
    assert spearmanr([efforts[name] for name in lab.exercises], graded).statistic >= 0.65


@pytest.mark.parametrize("slug", FIRST)
def test_the_header_has_the_lab_s_numbers(slug):
    lab = exercises.load(slug)
    text = " ".join(build.source_path(slug).read_text(encoding="utf-8").replace("\n#", " ").split())
    points, count, minutes = map(
        int, re.search(r"\*\*(\d+) points, (\d+) exercises, about (\d+) minutes", text).groups()
    )
    assert (points, count) == (lab.points, len(lab.exercises))
    assert minutes >= sum(exercise.minutes for exercise in lab.exercises.values())
    row = re.search(rf"^\| \[\d\d {slug}\].*$", (labs.CLONE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert row.group(0).split(" | ")[2] == str(minutes)


TIMED = exercises.LABS[1:]  # their headers say where the minutes go


@pytest.mark.parametrize("slug", TIMED)
def test_an_afternoon_is_two_hours(slug):
    """Core exercises are 70 points or more in at most 95 minutes; with reading and runs they fit into 120."""
    lab = exercises.load(slug)
    core = [exercise for exercise in lab.exercises.values() if not exercise.extra]
    text = " ".join(build.source_path(slug).read_text(encoding="utf-8").replace("\n#", " ").split())
    header = r"\*\*100 points, (\d+) exercises, about (\d+) minutes: (\d+) reading \+ (\d+) exercises \+ (\d+) runs"
    count, minutes, reading, own, runs = map(int, re.search(header, text).groups())
    assert (lab.points, count) == (100, len(lab.exercises))
    assert own == sum(exercise.minutes for exercise in core) <= 95
    assert minutes == reading + own + runs <= 120
    assert sum(exercise.points for exercise in core) >= 70
    row = re.search(rf"^\| \[\d\d {slug}\].*$", (labs.CLONE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert row.group(0).split(" | ")[2] == str(minutes)
