"""A ladder of hints ends before the code: most of a solution's expressions stand in no hint."""

import ast
import re
from collections.abc import Iterator

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.authors.mutants import solution_lines

MOST = 0.45  # of the characters of a solution's expressions
EXERCISE = re.compile(r"\{\{exercise (\w+)\}\}(.*?)^# %%$", re.MULTILINE | re.DOTALL)
HINT = re.compile(r"<details><summary>Hint(.*?)</details>", re.DOTALL)
SHORTEST = 8  # characters: a name and a number give nothing away


def bare(text: str) -> str:
    return re.sub(r"[\s'\"]|^# ?", "", text, flags=re.MULTILINE)


def expressions(solution: str) -> Iterator[str]:
    """Yield what the statements between the marks compute, ask and loop over."""
    lines = solution_lines(solution)
    for node in (n for n in ast.walk(ast.parse(solution)) if isinstance(n, ast.stmt) and n.lineno in lines):
        found = [getattr(node, name, None) for name in ("value", "test", "iter")]
        for part in (part for part in found if part is not None):
            yield from map(ast.unparse, part.elts if isinstance(part, ast.Tuple) else [part])


@pytest.mark.parametrize("slug", exercises.LABS)
def test_hints_end_before_the_code(slug):
    solutions = build.marked(slug)
    for name, text in EXERCISE.findall(build.source_path(slug).read_text(encoding="utf-8")):
        hints = bare("".join(HINT.findall(text)))
        parts = [bare(part) for part in expressions(solutions.get(name, ""))]
        given = [part for part in parts if len(part) >= SHORTEST and part in hints]
        assert len("".join(given)) <= MOST * len("".join(parts)), (name, given)
