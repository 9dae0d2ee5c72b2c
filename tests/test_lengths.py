"""Files and functions stay short."""

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 300  # of a file; exercises, the bank, honest answers and labs are texts for readers of their own
MEDIAN_LINES = 5  # of a function, its docstring not counted


def programs() -> list[Path]:
    """Every Python file of ours except exercises, bank, honest answers and labs."""
    folders = ("hpcdl", "autograder", "benchmarks", "tests", "docs")
    autograder, answers = ROOT / "autograder", ROOT / "tests" / "autograder" / "honest"
    texts = (autograder / "exercises", autograder / "bank", answers)
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if not any(path.is_relative_to(text) for text in texts)]


def test_no_file_is_too_long():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in programs()}
    long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    assert not long, f"files of more than {MOST_LINES} lines: split them"


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of its body without the docstring; 0 where there is nothing else."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def functions(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_half_of_all_functions_have_five_lines_or_fewer():
    lengths = [lines_of(function) for path in programs() for function in functions(path)]
    assert statistics.median(lengths) <= MEDIAN_LINES


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("def f(): pass", 1),
        ('def f():\n    """Says."""', 0),
        ('def f():\n    """Says."""\n    a = 1\n\n    return a', 3),
    ],
)
def test_a_functions_lines_are_those_of_its_body(code, lines):
    assert lines_of(ast.parse(code).body[0]) == lines
