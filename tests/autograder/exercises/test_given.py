"""What a lab gives is the lab's own in grading, and so is what that calls, down to the answer itself."""

import ast
import linecache
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.inside import magics, source
from autograder.sessions.local import LocalSession

GIVING = [
    pytest.param(slug, exercise.name, id=exercise.id)
    for slug in exercises.LABS
    for exercise in exercises.load(slug).exercises.values()
    if exercise.given
]
ATTACKS = Path(__file__).parents[1] / "attacks"


def functions_of(slug: str) -> dict[str, set[str]]:
    """The functions that the lab gives, each with the names that it uses; answers are blank."""
    cells = [magics.plain_python(cell.source) for cell in build.student(slug).cells if cell.cell_type == "code"]
    nodes = [node for code in cells for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    blank = [node for node in nodes if "NotImplementedError" in ast.unparse(node)]
    return {
        node.name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for node in nodes
        if node not in blank
    }


@pytest.mark.parametrize(("slug", "name"), GIVING)
def test_what_a_given_function_calls_is_given_too(slug, name):
    exercise, functions = exercises.load(slug).exercises[name], functions_of(slug)
    used = set().union(*(functions[given] for given in exercise.given))
    assert used & functions.keys() <= {*exercise.given}


@pytest.mark.parametrize(
    ("exercise", "attack"),
    [
        ("convolution.conv_kernel", "kernel_in_numpy"),
        ("stochastic_rounding.rounding_kernel", "kernel_that_calls_the_notebook"),
    ],
)
def test_a_notebooks_check_asks_for_a_kernel_of_tritons_as_grading_does(exercise, attack):
    slug, _, name = exercise.partition(".")
    lab, namespace = exercises.load(slug), {}
    cells = [(f"<cell {i}>", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    text = (ATTACKS / f"{attack}.py").read_text(encoding="utf-8")
    functions = list(lab.exercises[name].functions)
    for label, code in source.needed([*cells, ("<attack>", text)], functions)[0]:
        run_in(namespace, label, code)
    found = run.run_exercise(lab.exercises[name], LocalSession(namespace), seeds(b"", ""), hidden=False)
    assert found.points == 0
    assert "imports `numpy`" in found.checks[0].message
    assert found.checks[0].got.startswith("import numpy")


def run_in(namespace: dict, label: str, code: str) -> None:
    """Run a piece of a cell; as in a notebook, Python finds its text by its label."""
    linecache.cache[label] = (len(code), None, code.splitlines(keepends=True), label)
    exec(compile(code, label, "exec"), namespace)
