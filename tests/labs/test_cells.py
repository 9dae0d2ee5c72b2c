"""A lab's cells can be run again in any order, and each exercise says what to write."""

import ast
import re
from collections.abc import Iterator

import pytest

from autograder import exercises
from autograder.authors import build

IMPORTS = ast.Import | ast.ImportFrom


def rebound(cells: list[str]) -> list[str]:
    """The names that cells import and a cell then gives to something else: an earlier cell would fail if run again."""
    imported, found = set(), []
    for tree in map(ast.parse, cells):
        statements = [node for node in tree.body if not isinstance(node, IMPORTS)]
        found += [name for statement in statements for name in bound(statement) if name in imported]
        imports = [node for node in tree.body if isinstance(node, IMPORTS)]
        imported |= {alias.asname or alias.name for node in imports for alias in node.names}
    return found


def bound(statement: ast.stmt) -> Iterator[str]:
    """The names of the notebook that a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@pytest.mark.parametrize("slug", exercises.LABS)
def test_imported_names_keep_their_meaning(slug):
    assert not rebound(build.code(slug))


def test_rebound_names_are_found():
    cells = ["from pictures import gossip", "gossip.show()", "def gossip(): ..."]
    assert rebound(cells) == ["gossip"]


VERBS = (
    "Add|Build|Choose|Combine|Compute|Copy|Count|Divide|Fill|Go|Keep|Make|Measure|Overwrite|Put|Return|Run|Set|Shard|Split|Sum|Take"
    "|Turn|Write|Yield"
)
STEPS = re.compile(rf"(?:^|(?<=[.:]\s))(?:{VERBS})\b", re.MULTILINE)


@pytest.mark.parametrize("slug", exercises.LABS)
def test_each_exercise_says_what_to_write(slug):
    text = "\n".join(cell.source for cell in build.student(slug).cells if cell.cell_type == "markdown")
    parts = re.split(r"^### Exercise \d+ · `(\w+)`.*$", text, flags=re.MULTILINE)
    tasks = {name: part.partition("<details>")[0] for name, part in zip(parts[1::2], parts[2::2], strict=True)}
    assert list(tasks) == list(exercises.load(slug).exercises)
    assert not [name for name, task in tasks.items() if not STEPS.search(task)]
