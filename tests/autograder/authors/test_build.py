"""The notebook pipeline: deterministic, without solutions, and exact about an author's mistakes."""

import sys
import types

import nbformat
import pytest

from autograder import exercises
from autograder.authoring import Lab
from autograder.authors import build

SOURCE = '''\
# %% [markdown]
# # A toy lab
# {{exercise double}}

# %%
def double(x):
    """Twice x."""
    # BEGIN SOLUTION
    return 2 * x
    # END SOLUTION


# %%
check("toy.double")
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with one lab, `toy`, whose exercise `double` has a check; returns a function that builds a text."""
    (tmp_path / "source").mkdir()
    lab = Lab("toy", number=99, title="A toy")
    lab.exercise("double", points=10, minutes=2).check(points=10)(lambda student, rng: None)
    module = types.ModuleType("autograder.exercises.toy")
    module.lab = lab
    monkeypatch.setitem(sys.modules, "autograder.exercises.toy", module)
    monkeypatch.setattr(exercises, "LABS", ("toy",))
    monkeypatch.setattr(build, "LABS_DIR", tmp_path)

    def student(text):
        (tmp_path / "source" / "99_toy.py").write_text(text, encoding="utf-8")
        return build.student("toy")

    return student


def test_the_student_notebook_holds_the_stub_and_not_the_solution(toy):
    notebook = toy(SOURCE)
    assert notebook.cells[1].source.endswith('"""Twice x."""\n    raise NotImplementedError')
    assert "SOLUTION" not in build.write(notebook)
    assert notebook.metadata.kernelspec.name == "python3"


def test_the_heading_takes_points_and_minutes_from_the_exercise(toy):
    assert "### Exercise 1 · `double` ●○○ — 10 points, about 2 minutes" in toy(SOURCE).cells[0].source


def test_a_lab_is_called_by_its_number_of_today(toy):
    assert (
        "# Lab 99: see lab 99"
        in toy(SOURCE.replace("A toy lab", "Lab {{number toy}}: see lab {{number toy}}")).cells[0].source
    )


def test_an_extra_exercise_says_so(toy):
    exercises.load("toy").exercises["double"].extra = True
    assert "about 2 minutes, extra" in toy(SOURCE).cells[0].source


def test_solutions_have_no_marks(toy):
    toy(SOURCE)
    assert "return 2 * x" in build.solved("toy").cells[1].source
    assert build.references("toy")["double"].rstrip() == 'def double(x):\n    """Twice x."""\n    return 2 * x'


def test_building_twice_gives_the_same_bytes(toy):
    assert build.write(toy(SOURCE)) == build.write(toy(SOURCE))


def test_several_solutions_in_one_cell_each_become_a_stub(toy):
    second = "def triple(x):\n    # BEGIN SOLUTION\n    return 3 * x\n    # END SOLUTION\n"
    cell = toy(SOURCE.replace("\n\n# %%\ncheck", second + "\n\n# %%\ncheck")).cells[1].source
    assert cell.count("raise NotImplementedError") == 2
    assert "return" not in cell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    # END SOLUTION\n", ""), r"99_toy.py:8: .*never closed"),
        (("    return 2 * x\n", "    # BEGIN SOLUTION\n"), r"99_toy.py:9: .*inside the solution opened at line 8"),
        (("    # BEGIN SOLUTION\n", ""), r"99_toy.py:9: .*without `# BEGIN SOLUTION`"),
        (("# BEGIN SOLUTION", "#BEGIN SOLUTION"), r"99_toy.py:8: write the mark alone"),
        (('check("toy.double")', "print(double(2))"), r"99_toy.py:5: exercise cell without checks"),
        (('check("toy.double")', 'check("other.double")'), r"99_toy.py:14: .*names another lab"),
        (('check("toy.double")', 'check("toy.triple")'), r"99_toy.py:14: exercise 'triple' has no checks"),
        (("{{exercise double}}", "{{exercise triple}}"), r"99_toy.py:3: heading of an unknown exercise 'triple'"),
        (("A toy lab", "{{number nobody}}"), r"99_toy.py:2: the number of an unknown lab 'nobody'"),
        (("# %% [markdown]", "import torch\n# %% [markdown]"), r"99_toy.py:1: text above the first"),
    ],
)
def test_a_mistake_in_the_source_is_an_error_with_file_and_line(toy, change, message):
    assert change[0] in SOURCE
    with pytest.raises(build.BuildError, match=message):
        toy(SOURCE.replace(*change))


def test_exercise_given_twice_is_an_error(toy):
    again = SOURCE.split("\n\n", 1)[1]
    with pytest.raises(build.BuildError, match=r"exercise 'double' stands twice, first at line 5"):
        toy(SOURCE + "\n" + again)


def test_an_exercise_with_checks_but_no_cell_is_an_error(toy):
    with pytest.raises(build.BuildError, match="without a cell: double"):
        toy("# %% [markdown]\n# # Nothing here\n")


def test_cell_magics_are_written_as_comments_in_the_source(toy):
    notebook = toy(SOURCE + "\n# %%\n# %%px\n# x = comm.rank\n")
    assert notebook.cells[-1].source.startswith("%%px")


@pytest.mark.parametrize("path", build.sources(), ids=lambda path: path.stem)
def test_the_committed_notebook_is_what_the_source_builds(path):
    committed = build.LABS_DIR / f"{path.stem}.ipynb"
    assert committed.read_text(encoding="utf-8") == build.write(build.student(build.slug_of(path))), "run `make labs`"
    notebook = nbformat.read(committed, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
