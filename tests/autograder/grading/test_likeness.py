"""Whose code is like whose, or like a place that has it: copies are found, renamed or reordered, other answers not."""

from pathlib import Path

import pytest

from autograder import exercises
from autograder.grading import likeness, reference
from autograder.inside import fingerprint
from autograder.outputs import html
from autograder.results import ExerciseResult, LabResult

EXERCISE = "collectives.recursive_doubling_all_reduce"
NAME = EXERCISE.split(".")[1]

MINE = """
def recursive_doubling_all_reduce(x, comm):
    total = x.clone()
    distance = 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        theirs = torch.empty_like(total)
        comm.sendrecv(total, partner, theirs, partner)
        total += theirs
        distance *= 2
    for i in range(len(x)):
        x[i] = total[i]
"""
COPIED = """
def recursive_doubling_all_reduce(buffer, c):
    "Halves and doubles."
    step = 1
    mine = buffer.clone()
    while step < c.size:
        other = c.rank ^ step
        got = torch.empty_like(mine)
        c.sendrecv(mine, other, got, other)  # both ways
        mine += got
        step *= 2
    for k in range(len(buffer)):
        buffer[k] = mine[k]
"""
OTHER = """
def recursive_doubling_all_reduce(x, comm):
    inbox = [torch.zeros_like(x) for _ in range(comm.size.bit_length())]
    for level, incoming in enumerate(inbox[:-1]):
        neighbour = comm.rank + (1 << level) * (-1 if comm.rank >> level & 1 else 1)
        request = comm.irecv(incoming, neighbour, tag=level)
        comm.isend(x, neighbour, tag=level).wait()
        request.wait()
        x.add_(incoming)
"""


def answer(student: str, code: str, exercise: str = EXERCISE) -> LabResult:
    cells, functions = [("cell 1", code)], (exercise.split(".")[1],)
    result = ExerciseResult(exercise, functions[0], 10.0)
    result.fingerprint, result.shapes = fingerprint.of(cells, functions), fingerprint.shapes(cells, functions)
    return LabResult(student, exercise.split(".")[0], 10.0, [result])


def test_renamed_and_reordered_copy_is_found():
    found = likeness.alike([answer("ada", MINE), answer("bob", COPIED), answer("eve", OTHER)])
    assert [(like.exercise, like.who, like.where) for like in found] == [(EXERCISE, "ada", "bob")]
    assert 0.8 <= found[0].share < 1


def test_the_threshold_is_the_instructors():
    students = [answer("ada", MINE), answer("bob", COPIED)]
    (pair,) = likeness.alike(students)
    assert likeness.alike(students, pair.share - 1e-9) == [pair]
    assert likeness.alike(students, pair.share + 1e-9) == []


def test_what_many_have_counts_for_less_than_what_two_have():
    """Half of each answer is the same everywhere: handed out, or what everybody writes."""

    def code(*changes):
        return MINE.replace("for i in range(len(x)):\n        x[i] = total[i]", "\n    ".join(changes))

    odd = ["if comm.rank % 7 == 3 and x.numel() > 11:", "    x.mul_(comm.size // 3 + 1)"]
    class_ = [answer(f"s{i}", code(f"x.copy_(total.mul(1).view(x.shape)[{i}:].flip({i}))")) for i in range(12)]
    pair = [answer("ada", code(*odd, "x.copy_(total)")), answer("bob", code("x.set_(total)", *odd))]
    found = likeness.alike([*class_, *pair], 0.5)
    assert ("ada", "bob") in [(like.who, like.where) for like in found]
    assert not [like for like in found if like.who.startswith("s") and like.where.startswith("s") and like.share > 0.9]


def test_a_copy_of_the_library_is_found_with_its_place():
    file = Path(likeness.hpcdl.__file__).parent / "cost" / "scaling.py"
    code = file.read_text().replace("def merged", f"def {NAME}").replace("gradient", "g").replace("ends", "e")
    (like,) = likeness.alike([answer("ada", code)])
    assert like.where == "hpcdl/cost/scaling.py: merged"
    assert like.share > 0.9


@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_the_labs_own_solution_is_found_under_other_names(slug):
    lab = exercises.load(slug)
    for exercise in lab.exercises.values():
        shapes = fingerprint.shapes(reference.statements(slug, list(exercise.functions)), exercise.functions)
        result = LabResult("ada", slug, 10.0, [ExerciseResult(exercise.id, exercise.name, 10.0, shapes=shapes)])
        found = likeness.alike([result])
        assert not shapes or found[0].share == pytest.approx(1)


def test_hundreds_are_compared_in_seconds():
    students = [answer(f"s{i:03}", MINE if i % 2 else COPIED) for i in range(300)]
    rows = likeness.grouped(likeness.alike(students))
    assert all(len(row) == 4 for row in rows)
    assert len(rows) < 5, "those who are equal are a group elsewhere, and too many have the rest"


def test_the_instructors_page_shows_the_share_and_the_rule():
    page = html.instructor_page([answer("ada", MINE), answer("bob", COPIED)], 0.6)
    assert "Shown from 60 % on" in page
    assert "<td>ada</td><td>bob</td>" in page
    assert "no proof" in page
